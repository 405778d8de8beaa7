"""Qiskit's sampler primitive on the service: a whole sweep of parameters is one task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qiskit.primitives import BaseSamplerV2
from qiskit.primitives.containers.sampler_pub import SamplerPub

from qtide.client.backend import Backend
from qtide.client.sampling_job import Part, SamplingJob
from qtide.errors import UsageError

SHOTS = 1024
"""The default of Qiskit's other samplers."""


class QiskitSampler(BaseSamplerV2):  # type: ignore[misc]  # Qiskit has no types
    """Runs circuits that were transpiled for its backend."""

    def __init__(
        self, backend: Backend, *, default_shots: int = SHOTS, seed: int | None = None
    ) -> None:
        self._backend = backend
        self._shots = default_shots
        self._seed = seed

    def run(self, pubs: Iterable[Any], *, shots: int | None = None) -> SamplingJob:
        """Submit all pubs with the same number of shots as one task, if that is not too large."""
        coerced = [SamplerPub.coerce(pub, shots or self._shots) for pub in pubs]
        if not coerced:
            raise UsageError("the sampler was given nothing to run")
        wanted = dict.fromkeys(pub.shots for pub in coerced)
        parts = [self._part([pub for pub in coerced if pub.shots == one]) for one in wanted]
        return SamplingJob(coerced, parts)

    def _part(self, pubs: list[SamplerPub]) -> Part:
        circuits = [
            circuit for pub in pubs for circuit in pub.parameter_values.bind_all(pub.circuit).flat
        ]
        most = self._backend.max_circuits or len(circuits)
        jobs = [
            self._backend.run(
                circuits[at : at + most], shots=pubs[0].shots, seed_simulator=self._seed
            )
            for at in range(0, len(circuits), most)
        ]
        return Part(pubs, jobs)
