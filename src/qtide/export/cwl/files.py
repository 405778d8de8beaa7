"""The files of a workflow: the CWL itself, its inputs, and StreamFlow's mapping of its steps."""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from qtide.errors import UsageError
from qtide.export.cwl.advance import play, sent
from qtide.export.cwl.mapping import mapping
from qtide.export.cwl.yaml import yaml
from qtide.programs.journal import Journal
from qtide.programs.target import journaled
from qtide.runs.call import Call
from qtide.runs.folder import RunFolder
from qtide.runs.site import is_virtual, qpu_for, world_for
from qtide.system.files import write_whole

WORKFLOW = Path(__file__).with_name("workflow.cwl")
"""One workflow for all programs."""


@dataclass(frozen=True)
class Files:
    """Where the files of a workflow are."""

    workflow: Path
    inputs: Path
    mapping: Path

    @staticmethod
    def within(folder: Path) -> Files:
        """Under their usual names."""
        return Files(*(folder / name for name in ("workflow.cwl", "inputs.yml", "streamflow.yml")))

    def write(self, run: RunFolder) -> None:
        """Write them for a run; the workflow begins with the journal that the run has now."""
        journal = self.workflow.with_name("phases.journal")
        shutil.copyfile(run.journal, journal)
        shutil.copyfile(WORKFLOW, self.workflow)
        inputs = {
            "python": sys.executable,
            "folder": str(run.path.absolute()),
            "journal": {"class": "File", "path": str(journal.absolute())},
        }
        write_whole(self.inputs, yaml(inputs).encode())
        write_whole(self.mapping, yaml(mapping(run, self.workflow, self.inputs)).encode())


def check(run: RunFolder) -> None:
    """Refuse a run that no engine could drive, as far as its first phases tell."""
    if is_virtual(run.spec):
        raise UsageError(
            f"a workflow runs in real time: --cluster {run.spec.cluster} is a simulated one; "
            "name local or slurm"
        )
    call = run.call or Call.read(run.path, run.values, run.spec)
    begin(run, call)
    with TemporaryDirectory() as folder:
        draft = Path(folder) / "journal"
        shutil.copyfile(run.journal, draft)
        with closing(Journal(draft, call.program.name)) as journal:
            stand = play(run, call, journal, [])
        stand, *_ = sent(run, stand, 0.0, Path(folder))
    if stand.outcome is not None and "error" in stand.outcome:
        raise UsageError(stand.outcome["error"])


def begin(run: RunFolder, call: Call) -> None:
    """Create the journal, and note in it what the program has to know of its device."""
    with closing(Journal(run.journal, call.program.name)) as journal:
        if call.program.wants_target:
            world = world_for(run.spec)
            qpu = qpu_for(run.spec, world)
            world.run(journaled(journal, qpu.describe))
