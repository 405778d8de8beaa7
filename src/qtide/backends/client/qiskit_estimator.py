"""Qiskit's estimator primitive on the service: one call is one task.

The service gets each PUB as it is. The device measures operators together that one basis measures,
and sends back expectation values, not shots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from qiskit.primitives import BaseEstimatorV2, DataBin, PrimitiveResult, PubResult
from qiskit.primitives.containers.estimator_pub import EstimatorPub

from qtide.backends.client.backend import Backend
from qtide.backends.client.client import RemoteTask
from qtide.backends.client.qiskit_sampler import PrimitiveJob, values_for
from qtide.backends.payloads.formats.pubs import (
    CALIBRATIONS,
    MOST_TERMS,
    ObservableArray,
    Pub,
    Pubs,
)
from qtide.core.errors import UsageError

PRECISION = 1 / 64
"""The default precision, as in Qiskit's own estimator: 4,096 shots."""
PROJECTORS = {
    "0": (("I", 0.5), ("Z", 0.5)),
    "1": (("I", 0.5), ("Z", -0.5)),
    "+": (("I", 0.5), ("X", 0.5)),
    "-": (("I", 0.5), ("X", -0.5)),
    "r": (("I", 0.5), ("Y", 0.5)),
    "l": (("I", 0.5), ("Y", -0.5)),
}
"""Qiskit's letters for projectors, as sums of Pauli operators."""


class EstimationCost(NamedTuple):
    """What a call takes, before it is submitted."""

    circuits: int
    """Bound circuits: one per parameter set and basis, and those of the readout mitigation."""
    shots: int
    """The shots of all circuits together."""
    mitigation: int
    """The circuits among them that readout mitigation adds."""


class EstimatingJob(PrimitiveJob):
    """An estimation; it is one task."""

    def __init__(self, pubs: list[EstimatorPub], task: RemoteTask, shots: list[int]) -> None:
        super().__init__([task])
        self._pubs = pubs
        self._shots = shots

    def result(self) -> PrimitiveResult[PubResult]:
        """Wait for the result; raises an error if the task failed."""
        results = []
        for pub, shots, found in zip(self._pubs, self._shots, self.tasks[0].result(), strict=True):
            data = DataBin(evs=found.evs, stds=found.stds, shape=found.evs.shape)
            metadata = {
                "target_precision": pub.precision,
                "shots": shots,
                "circuits": found.circuits,
                "circuit_metadata": pub.circuit.metadata,
            }
            results.append(PubResult(data, metadata=metadata))
        return PrimitiveResult(results, metadata={"version": 2})


class QiskitEstimator(BaseEstimatorV2):  # type: ignore[misc]  # Qiskit has no types
    """Estimates observables on its backend; transpiles circuits that do not fit, each only once.

    As in Qiskit's own estimator, a precision of p takes 1/p² shots per circuit: each Pauli operator
    then has a standard error of p at most. `mitigation="m3"` corrects readout errors, at the price
    of two more circuits per call.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        default_precision: float = PRECISION,
        seed: int | None = None,
        mitigation: str | None = None,
    ) -> None:
        if mitigation not in (None, "m3"):
            raise UsageError(f"the estimator has the mitigation 'm3' or None, not {mitigation!r}")
        if "pubs" not in backend.formats:
            raise UsageError(f"the device {backend.name!r} takes no PUBs; use BackendEstimatorV2")
        self._backend = backend
        self._precision = default_precision
        self._seed = seed
        self._mitigated = mitigation is not None

    def run(
        self, pubs: Iterable[Any], *, precision: float | None = None, key: str | None = None
    ) -> EstimatingJob:
        """Submit pubs as one task; the same `key` gives the same task."""
        coerced, shots = self._coerced(pubs, precision)
        task = self._backend.submit(self._payload(coerced, shots), max(shots), self._seed, key=key)
        return EstimatingJob(coerced, task, shots)

    def cost(self, pubs: Iterable[Any], *, precision: float | None = None) -> EstimationCost:
        """Count the circuits and shots of a call, without submitting it."""
        coerced, shots = self._coerced(pubs, precision)
        payload = self._payload(coerced, shots)
        runs = [pub.executions for pub in payload.pubs]
        total = sum(run * each for run, each in zip(runs, shots, strict=True))
        added = CALIBRATIONS if self._mitigated else 0
        return EstimationCost(sum(runs) + added, total + added * max(shots), added)

    def payload(self, pubs: Iterable[Any], *, precision: float | None = None) -> Pubs:
        """What a call submits, for `Client.submit` and the like."""
        return self._payload(*self._coerced(pubs, precision))

    def _coerced(
        self, pubs: Iterable[Any], precision: float | None
    ) -> tuple[list[EstimatorPub], list[int]]:
        """Read the pubs, and how many shots each of their circuits takes."""
        wanted = self._precision if precision is None else precision
        coerced = [EstimatorPub.coerce(pub, wanted) for pub in pubs]
        if not coerced:
            raise UsageError("the estimator was given nothing to run")
        for pub in coerced:
            if not pub.size:
                raise UsageError("a PUB has no parameter sets, or no observables")
            if not 0 < pub.precision < math.inf:
                raise UsageError(f"a device needs a precision above 0, not {pub.precision}")
            most = self._backend.most.get("shots", 10**12)
            if pub.precision**2 * most < 1 - 1e-9:
                raise UsageError(
                    f"a precision of {pub.precision:g} takes more than the {most} shots that "
                    f"{self._backend.name} runs per circuit; ask for {most**-0.5:.2g} or more"
                )
        return coerced, [math.ceil(1 / pub.precision**2 - 1e-9) for pub in coerced]

    def _payload(self, pubs: list[EstimatorPub], shots: list[int]) -> Pubs:
        most = max(shots)
        made = [self._pub(pub, each / most) for pub, each in zip(pubs, shots, strict=True)]
        return Pubs(tuple(made), self._mitigated)

    def _pub(self, pub: EstimatorPub, share: float) -> Pub:
        fitted = self._backend.fitted(pub.circuit)
        observables = pub.observables
        if fitted is not pub.circuit:
            layout = fitted.layout
            observables = observables.apply_layout(layout, num_qubits=fitted.num_qubits)
        entries = tuple(_paulis(each) for each in np.ravel(observables.ravel().tolist()))
        return Pub(
            fitted,
            values_for(pub.circuit, pub.parameter_values, fitted),
            share,
            ObservableArray(observables.shape, entries),
        )


def _paulis(observable: dict[str, float]) -> dict[str, float]:
    """An observable as coefficients of Pauli labels: projectors become sums."""
    size = sum(2 ** sum(letter in PROJECTORS for letter in label) for label in observable)
    if size > MOST_TERMS:
        raise UsageError(
            f"projectors become sums of Pauli operators, here of {size}; {MOST_TERMS} at most are "
            "taken: use fewer projectors, or count the bit strings of a sampler"
        )
    terms: dict[str, float] = {}
    for label, coefficient in observable.items():
        letters = [PROJECTORS.get(letter, ((letter, 1.0),)) for letter in label]
        for choice in product(*letters):
            made = "".join(letter for letter, _ in choice)
            factor = math.prod(weight for _, weight in choice)
            terms[made] = terms.get(made, 0.0) + coefficient * factor
    return terms
