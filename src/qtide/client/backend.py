"""The service as a Qiskit backend: transpile for it, run on it, fetch results anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qiskit import QuantumCircuit
from qiskit.providers import BackendV2, Options
from qiskit.transpiler import Target

from qtide.client.circuit_job import CircuitJob, Label
from qtide.client.client import Client
from qtide.client.target import target_of
from qtide.errors import UsageError
from qtide.version import __version__

KNOWN = ("shots", "seed_simulator", "memory")
"""Every shot is kept anyway, so `memory` changes nothing."""


class Backend(BackendV2):  # type: ignore[misc]  # Qiskit has no types
    """One device that takes Qiskit circuits."""

    def __init__(self, client: Client, device: str) -> None:
        said = client.started_device(device)
        super().__init__(
            name=device,
            description=f"{said['kind']} of qtide",
            backend_version=__version__,
        )
        self._client = client
        self._target = target_of(said)
        self._most_circuits: int | None = said["properties"]["most"].get("circuits")

    @property
    def target(self) -> Target:
        """Which gate can act on which qubits."""
        return self._target

    @property
    def max_circuits(self) -> int | None:
        """How many circuits a task may have."""
        return self._most_circuits

    @classmethod
    def _default_options(cls) -> Options:
        """If no shots are given, the device chooses their number."""
        return Options(shots=None, seed_simulator=None)

    def run(
        self,
        run_input: QuantumCircuit | Sequence[QuantumCircuit],
        *,
        name: str = "",
        priority: int = 0,
        max_wait: float | None = None,
        **options: Any,
    ) -> CircuitJob:
        """Submit the circuits as one task; options are `shots` and `seed_simulator`."""
        circuits = [run_input] if isinstance(run_input, QuantumCircuit) else list(run_input)
        chosen = dict(self.options) | options
        for option in chosen.keys() - KNOWN:
            raise UsageError(f"a qtide backend has no option {option!r}; it has {', '.join(KNOWN)}")
        task = self._client.submit(
            circuits,
            self.name,
            shots=chosen["shots"],
            seed=chosen["seed_simulator"],
            name=name,
            priority=priority,
            max_wait=max_wait,
        )
        return CircuitJob(self, task, [Label(one.name, one.metadata or {}) for one in circuits])

    def retrieve_job(self, job_id: str) -> CircuitJob:
        """A job of this user, whichever process submitted it."""
        return CircuitJob(self, self._client.task(job_id), [])
