"""Exports a program as a CWL workflow: one workflow for all programs, with its own inputs."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qtide.backends.clusters.kind import cluster_kind
from qtide.core.errors import UsageError
from qtide.core.files import write_whole
from qtide.interfaces.export.advance import play, write_inputs
from qtide.interfaces.export.streamflow_mapping import StreamFlowMapping, yaml
from qtide.programs.command import Command
from qtide.programs.journal import Journal
from qtide.programs.phase import Classical, Phase, Task
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
        first = _prepare(run)
        write_workflow(run, run.path)
        for name, tool in command_tools(first).items():
            write_whole(run.path / f"{name}.cwl", yaml(tool).encode())
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


def _prepare(run: RunFolder) -> list[Phase]:
    """Create the journal; refuse a program whose first phases cannot be sent to steps.

    Return these phases.
    """
    call = run.call or Call.read(run.path, run.values, run.spec)
    with closing(Journal(run.journal, call.program.name)) as journal:
        world_for(run.spec).run(journal_target(run, call, journal))
    with TemporaryDirectory() as folder:
        draft = shutil.copyfile(run.journal, Path(folder) / "journal")
        with closing(Journal(draft, call.program.name)) as journal:
            state = play(run, call, journal, [])
        first = list(state.phases.values())
        state, *_ = write_inputs(run, state, 0.0, Path(folder))
    if state.outcome is not None and "error" in state.outcome:
        raise UsageError(f"{call.program.name} cannot be exported: {state.outcome['error']}")
    return first


def command_tools(phases: Iterable[Phase]) -> dict[str, dict[str, Any]]:
    """The commands of phases as plain CWL tools, by their names."""
    tasks = [task for phase in phases if isinstance(phase, Classical) for task in phase.tasks]
    return {task.name: _tool(task) for task in tasks if isinstance(task.function, Command)}


def _tool(task: Task[Any]) -> dict[str, Any]:
    """A command as a CommandLineTool that needs no qtide."""
    command: Command = task.function  # type: ignore[assignment]  # the caller has asked
    ids = {name: re.sub(r"\W", "_", name) for name in command.reads}
    words = [re.sub(r"(\\*)\$([({])", r"\1\1\\$\2", word) for word in command.words]
    for name, own in ids.items():
        words = [word.replace(f"{{{name}}}", f"$(inputs.{own}.basename)") for word in words]
    inputs = {
        own: {"type": "File", "default": _file(command.reads[name])} for name, own in ids.items()
    }
    requirements: dict[str, Any] = {}
    if inputs:
        requirements["InitialWorkDirRequirement"] = {"listing": [f"$(inputs.{i})" for i in inputs]}
    if command.env:
        requirements["EnvVarRequirement"] = {"envDef": dict(command.env)}
    if task.limit is not None:
        requirements["ToolTimeLimit"] = {"timelimit": ceil(task.limit)}
    tool: dict[str, Any] = {
        "cwlVersion": "v1.2",
        "class": "CommandLineTool",
        "$namespaces": {"cwltool": "http://commonwl.org/cwltool#"},
        "arguments": words,
        "requirements": requirements,
        "inputs": inputs,
        "outputs": {"output": {"type": "stdout"}},
        "stdout": command.stdout or "output.txt",
        "successCodes": list(command.success),
    }
    if isinstance(command.stdin, Path):
        inputs["stdin"] = {"type": "File", "default": _file(command.stdin)}
        tool["stdin"] = "$(inputs.stdin.path)"
    if command.writes:
        glob = {"glob": list(command.writes)}
        tool["outputs"]["files"] = {"type": "File[]", "outputBinding": glob}
    if command.ranks > 1:
        tool["hints"] = {"cwltool:MPIRequirement": {"processes": command.ranks}}
    return tool


def _file(path: Path) -> dict[str, str]:
    return {"class": "File", "path": str(path)}


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
