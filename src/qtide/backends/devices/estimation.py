"""Expectation values of Pauli operators from measured counts, with M3's readout mitigation.

M3 (Nation et al. 2021) inverts the readout errors within the bit strings that were measured. The
errors of each qubit come from two calibration circuits: all qubits in 0, and all in 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from qtide.backends.payloads.formats.pubs import Pauli, Pub
from qtide.backends.payloads.shots import Estimates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Counts = Mapping[int, int]


def measured(circuit: Any, basis: Pauli) -> Any:
    """The circuit with a measurement of every qubit that the basis acts on, one bit per qubit.

    The rotations are those that every gate device has: `rx` and `ry`.
    """
    from math import pi

    from qiskit import ClassicalRegister

    made = circuit.copy_empty_like()
    taken = {register.name for register in (*circuit.qregs, *circuit.cregs)}
    name = next(name for name in map("read{}".format, count()) if name not in taken)
    bits = ClassicalRegister(circuit.num_qubits, name)
    made.add_register(bits)
    made.compose(circuit, range(circuit.num_qubits), range(circuit.num_clbits), inplace=True)
    for qubit in range(circuit.num_qubits):
        if basis.x >> qubit & 1:
            if basis.z >> qubit & 1:
                made.rx(pi / 2, qubit)
            else:
                made.ry(-pi / 2, qubit)
        if basis.support >> qubit & 1:
            made.measure(qubit, bits[qubit])
    return made


class Readout:
    """The readout errors of each qubit."""

    def __init__(self, zeros: Counts, ones: Counts, qubits: int) -> None:
        import numpy as np

        self._matrices = np.array(
            [[_read_as(zeros, qubit), _read_as(ones, qubit)] for qubit in range(qubits)]
        ).transpose(0, 2, 1)
        """For each qubit, the probability of each read bit (row), given the true one (column)."""

    def assignment(self, keys: NDArray[np.int64], support: int) -> NDArray[np.float64]:
        """The probabilities to read each bit string (row), given each (column), as M3 has them.

        Only the measured strings count, so that each column is normalised.
        """
        import numpy as np

        found = np.ones((len(keys), len(keys)))
        for qubit, matrix in enumerate(self._matrices):
            if support >> qubit & 1:
                bits = keys >> qubit & 1
                found *= matrix[np.ix_(bits, bits)]
        normalised: NDArray[np.float64] = found / found.sum(axis=0)
        return normalised


def _read_as(counts: Counts, qubit: int) -> tuple[float, float]:
    """The frequencies of 0 and 1 of a qubit."""
    total = sum(counts.values())
    ones = sum(n for key, n in counts.items() if key >> qubit & 1)
    return 1 - ones / total, ones / total


def estimates(pub: Pub, counts: Sequence[Sequence[Counts]], readout: Readout | None) -> Estimates:
    """Combine the counts, by setting and parameter set, to expectation values.

    The standard error includes the covariances of operators that were measured together.
    """
    import numpy as np

    shape, pairs = pub.pairs
    identity = Pauli(0, 0)
    evs = np.array([pub.operators[entry].get(identity, 0.0) for _, entry in pairs])
    variances = np.zeros(len(pairs))
    places: dict[int, list[int]] = {}
    for place, (number, _) in enumerate(pairs):
        places.setdefault(number, []).append(place)
    for setting, by_set in zip(pub.settings, counts, strict=True):
        masks = sorted({operator.support for operator in setting.operators})
        column = {operator: masks.index(operator.support) for operator in setting.operators}
        weights: dict[int, NDArray[np.float64]] = {}
        for entry in {pairs[place][1] for number in setting.sets for place in places[number]}:
            weights[entry] = np.zeros(len(masks))
            for operator, coefficient in pub.operators[entry].items():
                if operator in column:
                    weights[entry][column[operator]] += coefficient
        for number, one in zip(setting.sets, by_set, strict=True):
            wanted = [pairs[place][1] for place in places[number]]
            chosen = np.array([weights[entry] for entry in wanted])
            mean, variance = _moments(one, masks, chosen, readout, setting.basis.support)
            evs[places[number]] += mean
            variances[places[number]] += variance
    executed = pub.executions
    return Estimates(evs.reshape(shape), np.sqrt(variances).reshape(shape), executed)


def _moments(
    counts: Counts,
    masks: Sequence[int],
    weights: NDArray[np.float64],
    readout: Readout | None,
    support: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean of each row of weights over the counts, and the variance of that mean."""
    import numpy as np

    keys = np.fromiter(counts.keys(), np.int64, len(counts))
    often = np.fromiter(counts.values(), np.float64, len(counts))
    shots = often.sum()
    parities = np.bitwise_count(keys[:, None] & np.array(masks, np.int64)) & 1
    values = weights @ (1.0 - 2.0 * parities).T
    if readout is not None:
        values = np.linalg.solve(readout.assignment(keys, support).T, values.T).T
    mean = values @ often / shots
    square = values**2 @ often / shots
    return mean, np.maximum(0.0, square - mean**2) / shots


def calibrations(qubits: int, support: int) -> Iterator[Any]:
    """The circuits that tell the readout errors of the support: all of it in 0, then in 1."""
    from math import pi

    from qiskit import QuantumCircuit

    measured = [qubit for qubit in range(qubits) if support >> qubit & 1]
    for angle in (0.0, pi):
        circuit = QuantumCircuit(qubits, qubits)
        if angle:
            circuit.rx(angle, measured)
        circuit.measure(measured, measured)
        yield circuit
