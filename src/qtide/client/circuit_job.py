"""A Qiskit job: circuits that were submitted, and their counts once they have run."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from qiskit.providers import BackendV2, JobStatus, JobV1
from qiskit.result import Result
from qiskit.result.models import ExperimentResult, ExperimentResultData

from qtide.client.client import OVER, RemoteTask
from qtide.payloads.shots import Shots
from qtide.version import __version__

STATUS = {
    "queued": JobStatus.QUEUED,
    "running": JobStatus.RUNNING,
    "done": JobStatus.DONE,
    "failed": JobStatus.ERROR,
    "cancelled": JobStatus.CANCELLED,
}


class Label(NamedTuple):
    """What identifies a circuit's results."""

    name: str
    metadata: dict[str, Any]


class CircuitJob(JobV1):  # type: ignore[misc]  # Qiskit has no types
    """One task; any process of the same user gets it by `Backend.retrieve_job`.

    Only the process that submitted the circuits knows their names and metadata; others tell the
    results apart by their number.
    """

    def __init__(self, backend: BackendV2, task: RemoteTask, labels: list[Label]) -> None:
        super().__init__(backend, task.id)
        self._task = task
        self._labels = labels

    def submit(self) -> None:
        """Do nothing: a job is already submitted when it is created."""

    def status(self) -> JobStatus:
        """Its status now."""
        if self._task.state not in OVER:
            self._task.refresh()
        return STATUS[self._task.state]

    def result(self, timeout: float | None = None) -> Result:
        """The result, once it is there; raises an error if the task failed."""
        answers = self.answers(timeout)
        labels = self._labels or [Label(f"circuit-{i}", {}) for i in range(len(answers))]
        return Result(
            backend_name=self.backend().name,
            backend_version=__version__,
            job_id=self.job_id(),
            success=True,
            results=[_experiment(*pair) for pair in zip(answers, labels, strict=True)],
        )

    def answers(self, timeout: float | None = None) -> list[Shots]:
        """Every shot of each circuit."""
        answers: list[Shots] = self._task.result(timeout)
        return answers

    def cancel(self) -> bool:
        """Cancel it; False if it had already ended."""
        if self._task.refresh().state in OVER:
            return False
        self._task.cancel()
        return True

    def queue_position(self) -> int | None:
        """How many tasks are ahead of it, if it waits."""
        position: int | None = self._task.refresh().said.get("position")
        return position

    def error_message(self) -> str | None:
        """Why it failed."""
        message: str | None = self._task.refresh().said["error"]
        return message


def _experiment(shots: Shots, label: Label) -> ExperimentResult:
    memory = [hex(value) for value in shots.values]
    header = {
        "name": label.name,
        "metadata": label.metadata,
        "creg_sizes": [[name, width] for name, width in shots.registers if name],
        "memory_slots": sum(width for _, width in shots.registers),
    }
    data = ExperimentResultData(counts=dict(Counter(memory)), memory=memory)
    return ExperimentResult(len(memory), True, data, header=header)
