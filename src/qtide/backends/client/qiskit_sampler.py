"""Qiskit's sampler primitive on the service: a whole parameter sweep is one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from qiskit.primitives import (
    BasePrimitiveJob,
    BaseSamplerV2,
    BitArray,
    DataBin,
    PrimitiveResult,
    SamplerPubResult,
)
from qiskit.primitives.containers.sampler_pub import SamplerPub
from qiskit.providers import JobStatus

from qtide.backends.client.backend import Backend, CircuitJob
from qtide.backends.payloads.shots import Shots
from qtide.core.errors import UsageError

ORDER = (
    JobStatus.ERROR,
    JobStatus.CANCELLED,
    JobStatus.QUEUED,
    JobStatus.RUNNING,
    JobStatus.DONE,
)
"""A job's status is the first of these that any of its tasks has."""


@dataclass(frozen=True)
class PubPart:
    """Pubs with the same number of shots, and the tasks that run them."""

    pubs: list[SamplerPub]
    jobs: list[CircuitJob]

    def answers(self) -> Iterator[Shots]:
        """Yield the shots of each circuit in order."""
        for job in self.jobs:
            yield from job.answers()


class SamplingJob(BasePrimitiveJob):  # type: ignore[misc]  # Qiskit has no types
    """A sampling job; its id is that of its first task, which is usually the only one."""

    def __init__(self, pubs: list[SamplerPub], parts: list[PubPart]) -> None:
        self.jobs = [job for part in parts for job in part.jobs]
        super().__init__(self.jobs[0].job_id())
        self._pubs = pubs
        self._parts = parts

    def result(self) -> PrimitiveResult[SamplerPubResult]:
        """Wait for the result; raises an error if a task failed."""
        found: dict[int, SamplerPubResult] = {}
        for part in self._parts:
            answers = part.answers()
            for pub in part.pubs:
                found[id(pub)] = _sampled(pub, list(islice(answers, pub.size)))
        return PrimitiveResult([found[id(pub)] for pub in self._pubs], metadata={"version": 2})

    def status(self) -> JobStatus:
        """The current status."""
        states = {job.status() for job in self.jobs}
        return next(state for state in ORDER if state in states)

    def done(self) -> bool:
        """Whether there is a result."""
        return self.status() is JobStatus.DONE

    def running(self) -> bool:
        """Whether the job is on the device."""
        return self.status() is JobStatus.RUNNING

    def cancelled(self) -> bool:
        """Whether the job was cancelled."""
        return self.status() is JobStatus.CANCELLED

    def in_final_state(self) -> bool:
        """Whether the job has ended, successfully or not."""
        return all(job.in_final_state() for job in self.jobs)

    def cancel(self) -> bool:
        """Cancel the job; False if it had already ended."""
        ended = [job.cancel() for job in self.jobs]
        return any(ended)


def _sampled(pub: SamplerPub, answers: list[Shots]) -> SamplerPubResult:
    registers = {one.name: one.size for one in pub.circuit.cregs if one.size}
    bits = [_bits(one) for one in answers]
    arrays: dict[str, Any] = {}
    low = 0
    for name, width in registers.items():
        columns = np.stack([one[:, low : low + width] for one in bits])
        shaped = columns.reshape(*pub.shape, pub.shots, width)
        arrays[name] = BitArray.from_bool_array(shaped, order="little")
        low += width
    words = {"shots": pub.shots, "circuit_metadata": pub.circuit.metadata}
    return SamplerPubResult(DataBin(**arrays, shape=pub.shape), metadata=words)


def _bits(shots: Shots) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """One row per shot, starting with the lowest bit of the first register."""
    data = np.frombuffer(shots.data, np.uint8).reshape(len(shots), -1)
    bits: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    bits = np.unpackbits(data, axis=1, bitorder="little").astype(np.bool_)
    return bits


SHOTS = 1024
"""The default number of shots, as in Qiskit's other samplers."""


class QiskitSampler(BaseSamplerV2):  # type: ignore[misc]  # Qiskit has no types
    """Runs circuits that were transpiled for its backend."""

    def __init__(
        self, backend: Backend, *, default_shots: int = SHOTS, seed: int | None = None
    ) -> None:
        self._backend = backend
        self._shots = default_shots
        self._seed = seed

    def run(self, pubs: Iterable[Any], *, shots: int | None = None) -> SamplingJob:
        """Submit pubs; those with equal shots form one task, or several if it gets too large."""
        coerced = [SamplerPub.coerce(pub, shots or self._shots) for pub in pubs]
        if not coerced:
            raise UsageError("the sampler was given nothing to run")
        wanted = dict.fromkeys(pub.shots for pub in coerced)
        parts = [self._part([pub for pub in coerced if pub.shots == one]) for one in wanted]
        return SamplingJob(coerced, parts)

    def _part(self, pubs: list[SamplerPub]) -> PubPart:
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
        return PubPart(pubs, jobs)
