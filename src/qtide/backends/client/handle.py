"""`qtide.qpu()`: the QPU that a job was given, for programs that do not run under qtide."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from qtide.backends.client.access import DEVICE
from qtide.backends.client.client import Client, RemoteTask

if TYPE_CHECKING:
    from qtide.backends.client.backend import Backend
    from qtide.backends.client.dimod_sampler import DimodSampler


class QpuHandle:
    """One device of a service: used directly, as a Qiskit backend, or as a dimod sampler."""

    def __init__(self, client: Client, device: str | None) -> None:
        self.client = client
        self.device = device

    def run(self, payload: Any, **words: Any) -> Any:
        """The answer to a payload: a binary quadratic model, circuits, or a burst."""
        return self.client.run(payload, self.device, **words)

    def submit(self, payload: Any, **words: Any) -> RemoteTask:
        """Submit a payload without waiting for its answer."""
        return self.client.submit(payload, self.device, **words)

    def backend(self) -> Backend:
        """As a backend for Qiskit, which takes a second to load."""
        from qtide.backends.client.backend import Backend

        return Backend(self.client, self.device or self.client.default_device("qpy"))

    def sampler(self) -> DimodSampler:
        """As a sampler for dimod, which is loaded only now."""
        from qtide.backends.client.dimod_sampler import DimodSampler

        return DimodSampler(self.client, self.device or self.client.default_device("bqm"))

    def __repr__(self) -> str:
        return f"<qpu {self.device or 'any'} at {self.client.access.url}>"


def qpu(device: str | None = None, *, url: str | None = None) -> QpuHandle:
    """The QPU of this job, as its environment says; or a device of the service at `url`."""
    return QpuHandle(Client(url), device or os.environ.get(DEVICE))
