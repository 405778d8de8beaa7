"""The files of a workflow: the CWL itself, its inputs, and StreamFlow's mapping of its steps."""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from qtide.errors import UsageError
from qtide.export.cwl.advance import play, sent
from qtide.export.cwl.mapping import Mapping
from qtide.export.cwl.yaml import yaml
from qtide.programs.journal import Journal
from qtide.programs.target import journaled
from qtide.runs.call import Call
from qtide.runs.folder import RunFolder
from qtide.runs.site import is_virtual, qpu_for, world_for
from qtide.runs.spec import Spec
from qtide.system.files import write_whole

WORKFLOW = Path(__file__).with_name("workflow.cwl")
"""One workflow for all programs."""


def write(run: RunFolder, folder: Path) -> None:
    """Write the files of a run; the workflow begins with what its journal has by then."""
    folder.mkdir(exist_ok=True)
    mapping = Mapping(run, folder)
    inputs = {
        "python": sys.executable,
        "folder": str(run.path.absolute()),
        "journal": {"class": "File", "path": str(run.journal.absolute())},
    }
    shutil.copyfile(WORKFLOW, folder / WORKFLOW.name)
    texts = {"inputs.yml": yaml(inputs), "streamflow.yml": yaml(mapping.content())}
    for name, text in (texts | mapping.scripts()).items():
        write_whole(folder / name, text.encode())


def check_spec(spec: Spec) -> None:
    """Refuse options that no engine can satisfy."""
    if is_virtual(spec):
        raise UsageError(
            f"a workflow engine runs in real time, and --cluster {spec.cluster} in virtual time; "
            "name local or slurm"
        )
    if spec.cluster.partition(":")[0] not in ("local", "slurm"):
        raise UsageError(
            f"no workflow engine knows --cluster {spec.cluster} as qtide does; name local or slurm"
        )


async def begin(run: RunFolder, call: Call, journal: Journal) -> None:
    """Note in the journal what the program has to know of its device."""
    if call.program.wants_target:
        await journaled(journal, qpu_for(run.spec, world_for(run.spec)).describe)


def prepare(run: RunFolder) -> None:
    """Create the journal, and refuse a program that no engine could run.

    The first phases tell: what they send to their steps has to be serialisable.
    """
    call = run.call or Call.read(run.path, run.values, run.spec)
    with closing(Journal(run.journal, call.program.name)) as journal:
        world_for(run.spec).run(begin(run, call, journal))
    with TemporaryDirectory() as folder:
        draft = shutil.copyfile(run.journal, Path(folder) / "journal")
        with closing(Journal(draft, call.program.name)) as journal:
            stand = play(run, call, journal, [])
        stand, *_ = sent(run, stand, 0.0, Path(folder))
    if stand.outcome is not None and "error" in stand.outcome:
        raise UsageError(f"{call.program.name} cannot be exported: {stand.outcome['error']}")
