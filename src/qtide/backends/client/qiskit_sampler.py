"""Qiskit's sampler primitive on the service: a whole parameter sweep is one task.

The service gets each PUB as it is: the circuit once, and the parameter values as one array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qiskit import QuantumCircuit
from qiskit.primitives import (
    BasePrimitiveJob,
    BaseSamplerV2,
    BitArray,
    DataBin,
    PrimitiveResult,
    SamplerPubResult,
)
from qiskit.primitives.containers.bindings_array import BindingsArray
from qiskit.primitives.containers.sampler_pub import SamplerPub
from qiskit.providers import JobStatus

from qtide.backends.client.backend import STATUS, Backend
from qtide.backends.client.client import OVER, RemoteTask
from qtide.backends.payloads.formats.pubs import Pub, Pubs
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


class PrimitiveJob(BasePrimitiveJob):  # type: ignore[misc]  # Qiskit has no types
    """The tasks of one call; the job's id is that of its first task, usually the only one."""

    def __init__(self, tasks: list[RemoteTask]) -> None:
        super().__init__(tasks[0].id)
        self.tasks = tasks

    def status(self) -> JobStatus:
        """The current status."""
        states = {STATUS[each.state] for each in self.tasks if each.state in OVER}
        states |= {STATUS[each.refresh().state] for each in self.tasks if each.state not in OVER}
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
        return self.status() not in (JobStatus.QUEUED, JobStatus.RUNNING)

    def cancel(self) -> bool:
        """Cancel the job; False if it had already ended."""
        live = [each for each in self.tasks if each.refresh().state not in OVER]
        for each in live:
            each.cancel()
        return bool(live)


def values_for(
    circuit: QuantumCircuit, values: BindingsArray, fitted: QuantumCircuit
) -> NDArray[np.float64]:
    """The values in the order of the fitted circuit, which may need fewer parameters."""
    array = (
        values.as_array(circuit.parameters)
        if circuit.num_parameters
        else np.zeros((*values.shape, 0))
    )
    column = {parameter: place for place, parameter in enumerate(circuit.parameters)}
    chosen = array[..., [column[parameter] for parameter in fitted.parameters]]
    return np.ascontiguousarray(chosen, dtype=np.float64)


class Piece(NamedTuple):
    """As many parameter sets of one PUB as fit into a task."""

    number: int
    """The PUB's number in the call."""
    pub: Pub


class SamplingJob(PrimitiveJob):
    """A sampling job."""

    def __init__(
        self, pubs: list[SamplerPub], tasks: list[RemoteTask], pieces: list[list[Piece]]
    ) -> None:
        super().__init__(tasks)
        self._pubs = pubs
        self._pieces = pieces

    def result(self) -> PrimitiveResult[SamplerPubResult]:
        """Wait for the result; raises an error if a task failed."""
        found: dict[int, list[Shots]] = {}
        for task, pieces in zip(self.tasks, self._pieces, strict=True):
            answers = iter(task.result())
            for piece in pieces:
                found.setdefault(piece.number, []).append(next(answers))
        results = [_sampled(pub, found[number]) for number, pub in enumerate(self._pubs)]
        return PrimitiveResult(results, metadata={"version": 2})


def _sampled(pub: SamplerPub, answers: list[Shots]) -> SamplerPubResult:
    registers = {one.name: one.size for one in pub.circuit.cregs if one.size}
    bits = np.concatenate([_bits(one) for one in answers])
    arrays: dict[str, Any] = {}
    low = 0
    for name, width in registers.items():
        shaped = bits[:, low : low + width].reshape(*pub.shape, pub.shots, width)
        arrays[name] = BitArray.from_bool_array(shaped, order="little")
        low += width
    words = {"shots": pub.shots, "circuit_metadata": pub.circuit.metadata}
    return SamplerPubResult(DataBin(**arrays, shape=pub.shape), metadata=words)


def _bits(shots: Shots) -> NDArray[np.bool_]:
    """One row per shot, starting with the lowest bit of the first register."""
    data = np.frombuffer(shots.data, np.uint8).reshape(len(shots), -1)
    return np.unpackbits(data, axis=1, bitorder="little").astype(np.bool_)


SHOTS = 1024
"""The default number of shots, as in Qiskit's other samplers."""


class QiskitSampler(BaseSamplerV2):  # type: ignore[misc]  # Qiskit has no types
    """Runs circuits on its backend; transpiles those that do not fit it, each only once."""

    def __init__(
        self, backend: Backend, *, default_shots: int = SHOTS, seed: int | None = None
    ) -> None:
        if "pubs" not in backend.formats:
            raise UsageError(f"the device {backend.name!r} takes no PUBs; use BackendSamplerV2")
        self._backend = backend
        self._shots = default_shots
        self._seed = seed

    def run(
        self, pubs: Iterable[Any], *, shots: int | None = None, key: str | None = None
    ) -> SamplingJob:
        """Submit pubs as one task, or as several if they have too many parameter sets.

        The same `key` gives the same tasks, so a program that was killed finds them again.
        """
        wanted = self._shots if shots is None else shots
        if wanted < 1:
            raise UsageError(f"a sampler takes one shot or more, not {wanted}")
        coerced = [SamplerPub.coerce(pub, wanted) for pub in pubs]
        if not coerced:
            raise UsageError("the sampler was given nothing to run")
        if not all(pub.size for pub in coerced):
            raise UsageError("a PUB has no parameter sets")
        most = max(pub.shots for pub in coerced)
        pieces = list(self._tasks(coerced, most))
        tasks = [
            self._backend.submit(
                Pubs(tuple(piece.pub for piece in each)),
                most,
                self._seed,
                key=None if key is None else f"{key}/{number}",
            )
            for number, each in enumerate(pieces)
        ]
        return SamplingJob(coerced, tasks, pieces)

    def _tasks(self, pubs: list[SamplerPub], shots: int) -> Iterator[list[Piece]]:
        """Divide the PUBs among as few tasks as the device's limit allows."""
        most = self._backend.most.get("executions", math.inf)
        task: list[Piece] = []
        room = most
        for number, pub in enumerate(pubs):
            fitted = self._backend.fitted(pub.circuit)
            values = values_for(pub.circuit, pub.parameter_values, fitted)
            rows = values.reshape(pub.size, values.shape[-1])
            while len(rows):
                size = int(min(room, len(rows)))
                task.append(Piece(number, Pub(fitted, rows[:size], pub.shots / shots)))
                rows, room = rows[size:], room - size
                if not room:
                    yield task
                    task, room = [], most
        if task:
            yield task
