"""The file streamflow.yml, which maps a workflow's steps to places, and the job scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from qtide.backends.clusters.kind import StepJobs, cluster_kind
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_service

POLLING = 1
"""Seconds between two checks of its jobs by StreamFlow."""
RETRIES = 3
"""Number of times StreamFlow retries a failed step."""
MOST_JOBS = 1000
"""Maximum number of queued StreamFlow jobs, unless --nodes sets fewer."""


@dataclass(frozen=True)
class StreamFlowMapping:
    """The mapping of a run; every path in it is below `folder`."""

    run: RunFolder
    folder: Path

    def content(self) -> dict[str, Any]:
        """Return the content of streamflow.yml."""
        places = {
            "/": "host",
            "/phases/classical": "host" if self._jobs is None else "compute",
            "/phases/quantum": self._quantum_place,
        }
        return {
            "version": "v1.0",
            "workflows": {
                "qtide": {
                    "type": "cwl",
                    "config": {"file": "workflow.cwl", "settings": "inputs.yml"},
                    "bindings": [
                        {"step": step, "target": _target(place)} for step, place in places.items()
                    ],
                }
            },
            "deployments": self._deployments(),
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
        """Return the scripts of batch jobs by file name."""
        jobs = self._jobs
        if jobs is None:
            return {}
        found = {"compute.sh": _script(jobs, jobs.classical)}
        if jobs.quantum is not None:
            found["quantum.sh"] = _script(jobs, jobs.quantum)
        return found

    def _deployments(self) -> dict[str, Any]:
        spec, jobs = self.run.spec, self._jobs
        work = str(self.folder.absolute() / "work")
        found: dict[str, Any] = {"host": {"type": "local", "config": {}, "workdir": work}}
        if jobs is not None:
            found["compute"] = _batch_system(jobs, "compute", spec.nodes or MOST_JOBS, work)
        if jobs is not None and self._quantum_place == "quantum":
            found["quantum"] = _batch_system(jobs, "quantum", spec.vqpus, work)
        if self._quantum_place == "service":
            config = {"url": spec.qpu, "slots": spec.vqpus}
            found["service"] = {"type": "qtide", "config": config, "workdir": work}
        return found

    @cached_property
    def _jobs(self) -> StepJobs | None:
        return step_jobs(self.run)

    @property
    def _quantum_place(self) -> str:
        """The place that sends payloads: a job that holds a lease, the service, or this host."""
        if self._jobs is not None and self._jobs.quantum is not None:
            return "quantum"
        return "service" if is_service(self.run.spec.qpu) else "host"


def step_jobs(run: RunFolder) -> StepJobs | None:
    """Return how the steps of a run become batch jobs; None if they run on the engine's host."""
    kind, _ = cluster_kind(run.spec.cluster)
    return kind.step_jobs(run.spec.setting(), mark(run))


def mark(run: RunFolder) -> str:
    """Return the job comment by which a run's batch jobs are found after their engine died."""
    return f"qtide-engine:{run.path.absolute()}"


def yaml(value: Any, depth: int = 0) -> str:
    """Return nested dicts and lists as YAML, with values in JSON notation."""
    if not (isinstance(value, dict | list) and value):
        return json.dumps(value) + "\n"
    margin = "  " * depth
    if isinstance(value, list):
        return "".join(f"{margin}- {yaml(each, depth + 1).lstrip()}" for each in value)
    lines = []
    for name, each in value.items():
        nested = isinstance(each, dict | list) and each
        below = f"\n{yaml(each, depth + 1)}" if nested else f" {yaml(each)}"
        lines.append(f"{margin}{name}:{below}")
    return "".join(lines)


def _target(place: str) -> dict[str, str]:
    target = {"deployment": place}
    return target | {"service": place} if place in ("compute", "quantum") else target


def _batch_system(jobs: StepJobs, name: str, most: int, work: str) -> dict[str, Any]:
    services = {name: {"file": f"{name}.sh"}}
    config = {"maxConcurrentJobs": most, "pollingInterval": POLLING, "services": services}
    return {"type": jobs.system, "config": config, "workdir": work, "wraps": "host"}


def _script(jobs: StepJobs, options: Sequence[str]) -> str:
    directives = "\n".join(f"{jobs.directive} {quote(option)}" for option in options)
    return f"#!/bin/sh\n{directives}\n\n{{{{streamflow_command}}}}\n"
