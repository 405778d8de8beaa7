"""The QPU of a session: used directly, as a Qiskit backend, or as a dimod sampler."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from qtide.core.errors import UsageError
from qtide.programs.phase import Quantum, Task, candidate

if TYPE_CHECKING:
    from qtide.backends.client.backend import Backend
    from qtide.backends.client.dimod_sampler import DimodSampler


class QpuOwner(Protocol):
    """The interface of a session that its QPU uses."""

    @property
    def name(self) -> str:
        """Name of the session."""

    def quantum(self, phase: Quantum) -> Future[Any]:
        """Run a payload on the QPU."""

    def describe_qpu(self) -> dict[str, Any]:
        """Describe the device."""


class SessionQpu:
    """The device of a session; each payload becomes a quantum phase of the strategy."""

    def __init__(self, session: QpuOwner) -> None:
        self._session = session

    def run(self, payload: Any, **terms: Any) -> Any:
        """Return the answer to a payload: a binary quadratic model, circuits, or a burst."""
        return self.submit(payload, **terms).result()

    def submit(
        self,
        payload: Any,
        *,
        shots: int | None = None,
        seed: int | None = None,
        otherwise: Task[Any] | None = None,
        patience: float | None = None,
    ) -> Future[Any]:
        """Submit a payload; the future's result is the answer.

        `otherwise` and `patience` are as in `qtide.quantum`.
        """
        phase = Quantum(payload, shots, None, seed, *candidate(otherwise, patience))
        phase.use()
        return self._session.quantum(phase)

    def backend(self) -> Backend:
        """Return a backend for Qiskit."""
        # imported late: Qiskit is slow to import
        from qtide.backends.client.backend import Backend

        client: Any = SessionClient(self)
        return Backend(client, client.device["name"])

    def sampler(self) -> DimodSampler:
        """Return a sampler for dimod."""
        # imported late: dimod is slow to import
        from qtide.backends.client.dimod_sampler import DimodSampler

        client: Any = SessionClient(self)
        return DimodSampler(client, client.device["name"])

    def describe(self) -> dict[str, Any]:
        """Return the device's `name`, `kind` and `properties`."""
        return self._session.describe_qpu()

    def __repr__(self) -> str:
        return f"<qpu of the session {self._session.name}>"


class SessionClient:
    """Stands in for the service's client in its backend and sampler."""

    def __init__(self, qpu: SessionQpu) -> None:
        self._qpu = qpu
        self.device = qpu.describe()

    def started_device(self, _: str) -> dict[str, Any]:
        """Return the device of the session."""
        return self.device

    def submit(
        self,
        payload: Any,
        device: str | None = None,
        *,
        shots: int | None = None,
        seed: int | None = None,
        **_: Any,
    ) -> SessionTask:
        """Submit a payload; service options such as a priority have no effect."""
        return SessionTask(self._qpu.submit(payload, shots=shots, seed=seed))

    def task(self, _: str) -> SessionTask:
        """Refuse: a session's tasks are futures without ids."""
        raise UsageError("a session keeps no jobs by their ids: keep the job itself")


class SessionTask:
    """A submitted payload, with the interface of a task of the service."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future
        self.id = f"{id(future):x}"
        self._submitted = time.time()

    @property
    def state(self) -> str:
        """The state, in the service's terms."""
        if not self.future.done():
            return "running" if self.future.running() else "queued"
        if self.future.cancelled():
            return "cancelled"
        return "failed" if self.future.exception() else "done"

    @property
    def response(self) -> dict[str, Any]:
        """The times and the error in the form the service reports."""
        error = self.future.exception() if self.future.done() else None
        now = time.time()
        times = {"submitted": self._submitted, "started": self._submitted, "ended": now}
        used = {"qpu_seconds": now - self._submitted, "position": None}
        return times | used | {"error": str(error) if error else None}

    def refresh(self) -> SessionTask:
        """Return the task itself: there is nothing to fetch."""
        return self

    def result(self, timeout: float | None = None) -> Any:
        """Return the answer."""
        return self.future.result(timeout)

    def cancel(self) -> None:
        """Cancel the payload if it has not begun."""
        self.future.cancel()
