"""YAML for the files of a workflow: nested names and lists, with JSON's notation of values."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

from qtide.backends.clusters.slurm.slurm_kind import companion_options
from qtide.core.errors import UsageError
from qtide.core.files import write_whole
from qtide.interfaces.export.advance import play, sent
from qtide.programs.journal import Journal
from qtide.runs.driver import journaled_target
from qtide.runs.folder import Call, RunFolder
from qtide.runs.open_site import is_service, is_virtual, qpu_for, world_for
from qtide.runs.spec import Spec
from qtide.runs.start import check


def yaml(value: Any, depth: int = 0) -> str:
    """The text of a value."""
    if not (isinstance(value, dict | list) and value):
        return json.dumps(value) + "\n"
    margin = "  " * depth
    if isinstance(value, dict):
        return "".join(f"{margin}{name}:{_below(each, depth)}" for name, each in value.items())
    return "".join(f"{margin}- {yaml(each, depth + 1).lstrip()}" for each in value)


def _below(value: Any, depth: int) -> str:
    nested = isinstance(value, dict | list) and value
    return f"\n{yaml(value, depth + 1)}" if nested else f" {yaml(value)}"


POLL = 1
"""Seconds between two looks of StreamFlow at its jobs."""
RETRIES = 3
"""How often StreamFlow tries a step that failed."""
MOST = 1000
"""Jobs that StreamFlow may have in the queue, unless --nodes says fewer."""
SCRIPT = "#!/bin/sh\n{directives}\n\n{{{{streamflow_command}}}}\n"


@dataclass(frozen=True)
class Mapping:
    """The mapping of a run, with the scripts of its batch jobs, in one folder."""

    run: RunFolder
    folder: Path

    def content(self) -> dict[str, Any]:
        """What streamflow.yml says; every path in it is below the folder."""
        spec = self.run.spec
        return {
            "version": "v1.0",
            "workflows": {
                "qtide": {
                    "type": "cwl",
                    "config": {"file": "workflow.cwl", "settings": "inputs.yml"},
                    "bindings": [
                        {"step": step, "target": target} for step, target in _targets(spec).items()
                    ],
                }
            },
            "deployments": self._deployments(spec),
            "failureManager": {
                "type": "default",
                "config": {"max_retries": RETRIES, "retry_delay": 1},
            },
            "database": {
                "type": "default",
                "config": {"connection": str(self.folder.absolute() / "streamflow.db")},
            },
        }

    def scripts(self) -> dict[str, str]:
        """The scripts of batch jobs, by the names of their files."""
        spec = self.run.spec
        if not _on_slurm(spec):
            return {}
        options, comment = companion_options(spec.setting()), mark(self.run)
        found = {"compute.sh": options.salloc("qtide-step", comment, "1")[1:]}
        if options.qpu_by is not None:
            found["quantum.sh"] = options.qpu("qtide-step", comment)
        return {name: _script(words) for name, words in found.items()}

    def _deployments(self, spec: Spec) -> dict[str, Any]:
        work = str(self.folder.absolute() / "work")
        found: dict[str, Any] = {"host": {"type": "local", "config": {}, "workdir": work}}
        if _on_slurm(spec):
            found["compute"] = _slurm("compute", spec.nodes or MOST, work)
            if _quantum(spec) == "quantum":
                found["quantum"] = _slurm("quantum", spec.vqpus, work)
        if _quantum(spec) == "service":
            config = {"url": spec.qpu, "slots": spec.vqpus}
            found["service"] = {"type": "qtide", "config": config, "workdir": work}
        return found


def mark(run: RunFolder) -> str:
    """What a run's batch jobs are known by, when their engine is dead."""
    return f"qtide-engine:{run.path.absolute()}"


def _targets(spec: Spec) -> dict[str, dict[str, str]]:
    """Where each step runs; a step in none of them runs where its workflow does."""
    steps = {"/": "host", "/phases/classical": "compute" if _on_slurm(spec) else "host"}
    steps["/phases/quantum"] = _quantum(spec)
    return {step: dict(_target(place)) for step, place in steps.items()}


def _target(place: str) -> Iterator[tuple[str, str]]:
    yield "deployment", place
    if place in ("compute", "quantum"):
        yield "service", place


def _quantum(spec: Spec) -> str:
    """Where payloads are sent from: a job that holds a lease, the service, or this host."""
    if _on_slurm(spec) and companion_options(spec.setting()).qpu_by is not None:
        return "quantum"
    return "service" if is_service(spec.qpu) else "host"


def _on_slurm(spec: Spec) -> bool:
    return spec.cluster.partition(":")[0] == "slurm"


def _slurm(name: str, jobs: int, work: str) -> dict[str, Any]:
    services = {name: {"file": f"{name}.sh"}}
    config = {"maxConcurrentJobs": jobs, "pollingInterval": POLL, "services": services}
    return {"type": "slurm", "config": config, "workdir": work, "wraps": "host"}


def _script(words: list[str]) -> str:
    return SCRIPT.format(directives="\n".join(f"#SBATCH {quote(word)}" for word in words))


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
        await journaled_target(journal, qpu_for(run.spec, world_for(run.spec)).describe)


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


STRATEGY = "workflow"
"""What a run that an engine drives holds when."""


def export_cwl(spec: Spec, folder: Path) -> RunFolder:
    """Write a program as a workflow to a new folder; whoever has that chooses the engine."""
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
        prepare(run)
        write(run, run.path)
    except BaseException:
        shutil.rmtree(run.path)
        raise
    return run
