"""Exports a program as a CWL workflow: one workflow for all programs, with its own inputs."""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from qtide.backends.clusters.kind import cluster_kind
from qtide.core.errors import UsageError
from qtide.core.files import write_whole
from qtide.interfaces.export.advance import play, write_inputs
from qtide.interfaces.export.streamflow_mapping import StreamFlowMapping, yaml
from qtide.programs.journal import Journal
from qtide.runs.driver import journaled_target
from qtide.runs.folder import Call, RunFolder
from qtide.runs.open_site import is_virtual, qpu_for, world_for
from qtide.runs.spec import Spec
from qtide.runs.start import check

WORKFLOW = Path(__file__).with_name("workflow.cwl")
"""The workflow of all programs."""
STRATEGY = "workflow"
"""Strategy of runs driven by an engine: one allocation per step."""


def export_cwl(spec: Spec, folder: Path) -> RunFolder:
    """Write a program as a workflow to a new folder, from which any CWL engine can run it."""
    options = {name: value for name, value in spec.options.items() if name != "engine"}
    spec = replace(spec, strategy=STRATEGY, options=options)
    check_spec(spec)
    check(spec)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already and is not empty; name another folder with -o")
    if folder.exists():
        folder.rmdir()
    run = RunFolder.create(folder.absolute().parent, folder.name, spec)
    try:
        _prepare(run)
        write_workflow(run, run.path)
    except BaseException:
        shutil.rmtree(run.path)
        raise
    return run


def check_spec(spec: Spec) -> None:
    """Refuse options that no engine can satisfy."""
    if is_virtual(spec):
        raise UsageError(
            f"a workflow engine runs in real time, and --cluster {spec.cluster} in virtual time; "
            "name local or another real cluster"
        )
    kind, _ = cluster_kind(spec.cluster)
    kind.step_jobs(spec.setting(), "")


def _prepare(run: RunFolder) -> None:
    """Create the journal; refuse a program whose first phases cannot be sent to steps."""
    call = run.call or Call.read(run.path, run.values, run.spec)
    with closing(Journal(run.journal, call.program.name)) as journal:
        world_for(run.spec).run(journal_target(run, call, journal))
    with TemporaryDirectory() as folder:
        draft = shutil.copyfile(run.journal, Path(folder) / "journal")
        with closing(Journal(draft, call.program.name)) as journal:
            state = play(run, call, journal, [])
        state, *_ = write_inputs(run, state, 0.0, Path(folder))
    if state.outcome is not None and "error" in state.outcome:
        raise UsageError(f"{call.program.name} cannot be exported: {state.outcome['error']}")


async def journal_target(run: RunFolder, call: Call, journal: Journal) -> None:
    """Write a description of the device to the journal if the program asks for it."""
    if call.program.wants_target:
        await journaled_target(journal, qpu_for(run.spec, world_for(run.spec)).describe)


def write_workflow(run: RunFolder, folder: Path) -> None:
    """Write the files of a workflow that continues from the run's current journal."""
    folder.mkdir(exist_ok=True)
    mapping = StreamFlowMapping(run, folder)
    inputs = {
        "python": sys.executable,
        "folder": str(run.path.absolute()),
        "journal": {"class": "File", "path": str(run.journal.absolute())},
    }
    shutil.copyfile(WORKFLOW, folder / WORKFLOW.name)
    texts = {"inputs.yml": yaml(inputs), "streamflow.yml": yaml(mapping.content())}
    for name, text in (texts | mapping.scripts()).items():
        write_whole(folder / name, text.encode())
