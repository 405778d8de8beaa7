"""StreamFlow's mapping: which step of the workflow runs where, from the options of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from qtide.runs.folder import RunFolder
from qtide.runs.site import is_service
from qtide.runs.spec import Spec
from qtide.slurm.kind import companion_options

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
