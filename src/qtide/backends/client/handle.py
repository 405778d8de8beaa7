"""`qtide.qpu()`: the job's QPU, for programs that do not run under qtide."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from qtide.backends.client.access import DEVICE
from qtide.backends.client.client import Client, RemoteTask

if TYPE_CHECKING:
    from qtide.backends.client.backend import Backend
    from qtide.backends.client.dimod_sampler import DimodSampler
    from qtide.backends.client.qiskit_estimator import QiskitEstimator
    from qtide.backends.client.qiskit_sampler import QiskitSampler


class QpuHandle:
    """One device of a service: used directly, as a Qiskit backend, or as a dimod sampler."""

    def __init__(self, client: Client, device: str | None) -> None:
        self.client = client
        self.device = device

    def run(self, payload: Any, **words: Any) -> Any:
        """Return the answer to a payload: a binary quadratic model, circuits, or a burst."""
        return self.client.run(payload, self.device, **words)

    def submit(self, payload: Any, **words: Any) -> RemoteTask:
        """Submit a payload without waiting for its answer."""
        return self.client.submit(payload, self.device, **words)

    def backend(self) -> Backend:
        """Return the device as a Qiskit backend; loading Qiskit takes a second."""
        from qtide.backends.client.backend import Backend

        return Backend(self.client, self.device or self.client.default_device("qpy"))

    def estimator(self, **options: Any) -> QiskitEstimator:
        """Return an estimator primitive of the device; options are those of `QiskitEstimator`."""
        from qtide.backends.client.qiskit_estimator import QiskitEstimator

        return QiskitEstimator(self.backend(), **options)

    def qiskit_sampler(self, **options: Any) -> QiskitSampler:
        """Return a sampler primitive of the device; options are those of `QiskitSampler`."""
        from qtide.backends.client.qiskit_sampler import QiskitSampler

        return QiskitSampler(self.backend(), **options)

    def sampler(self) -> DimodSampler:
        """Return the device as a dimod sampler; dimod is loaded only now."""
        from qtide.backends.client.dimod_sampler import DimodSampler

        return DimodSampler(self.client, self.device or self.client.default_device("bqm"))

    def __repr__(self) -> str:
        return f"<qpu {self.device or 'any'} at {self.client.access.url}>"


def qpu(device: str | None = None, *, url: str | None = None) -> QpuHandle:
    """Return the QPU named in this job's environment, or a device of the service at `url`."""
    return QpuHandle(Client(url), device or os.environ.get(DEVICE))
