"""A noisy chip whose qubits form a grid; several circuits can run on it at once, side by side.

Each gets a connected region of its own, and is transpiled to it. Two-qubit gates disturb each other
across the border of two regions: crosstalk. As the noise acts on few qubits at a time, the state is
a product of the regions' states. So each region is emulated by itself, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

from qtide.backends.devices.chip import ALWAYS, TWO, Chip
from qtide.backends.devices.circuits import Gates
from qtide.backends.devices.device import Device
from qtide.backends.devices.gate import (
    MOST_NOISY_QUBITS,
    TWO_QUBIT_ERROR,
    GateDevice,
    noise_model,
    noisy_gates,
)
from qtide.backends.payloads.formats.iqm import IqmBatch
from qtide.backends.payloads.formats.pubs import Pubs
from qtide.backends.payloads.payload import Burst, PayloadRefused
from qtide.core.errors import UsageError

MOST_QUBITS = 100
IDLE = ("barrier", "delay")
"""Operations that do not use a qubit."""


class GridDevice(GateDevice):
    """The whole chip."""

    def __init__(
        self, rows: int, columns: int, noise: float, crosstalk: float, threads: int
    ) -> None:
        chip = Chip.of(rows * columns, _connections(rows, columns))
        super().__init__("grid", chip, noisy_gates(), noisy=True, threads=threads, noise=noise)
        self._path = _path(rows, columns)
        self._crosstalk = crosstalk

    def properties(self) -> dict[str, Any]:
        """Like those of any gate device, with the qubits that may be divided among circuits."""
        return super().properties() | {"divisible": len(self._path)}

    def width(self, payload: Any) -> int | None:
        """The qubits that Qiskit circuits or OpenQASM use; other payloads name their qubits."""
        if isinstance(payload, Burst):
            return 1
        if isinstance(payload, IqmBatch | Pubs):
            return None
        return max(len(used(circuit)) for circuit in self._batch(payload))

    def beside(self, payloads: Sequence[Any]) -> list[Device]:
        """For each payload, a region of the chip, with crosstalk from all others."""
        widths = [self.width(payload) or 0 for payload in payloads]
        regions = segments(self._path, widths)
        taken = {qubit for region in regions for qubit in region}
        return [Region(self, region, taken.difference(region)) for region in regions]

    def neighbours(self, qubits: Iterable[int], others: set[int]) -> int:
        """How many qubits of others' circuits are next to one of these."""
        mine = {*qubits}
        return len({a for a, b in self._both_ways if a in others and b in mine})

    def pair_error(self, neighbours: int) -> float:
        """The error of a two-qubit gate with so many qubits of others' circuits next to it."""
        return min(1.0, self._noise * TWO_QUBIT_ERROR * (1 + self._crosstalk * neighbours))

    @property
    def gates(self) -> Gates:
        """The gates of the chip, which each region has as well."""
        return self._gates

    @property
    def noise(self) -> float:
        """By how much the errors of the noise model are multiplied."""
        return self._noise

    @property
    def threads(self) -> int:
        """The threads that the emulator may use."""
        return self._threads

    @cached_property
    def _both_ways(self) -> list[tuple[int, int]]:
        return [pair for a, b in self.chip.connections for pair in ((a, b), (b, a))]

    def _emulated_qubits(self, payload: Any) -> int:
        """The emulator leaves out the qubits that a circuit does not use, and nobody measures."""
        masks = [_mask(circuit) for circuit in self._circuits(payload)]
        if isinstance(payload, Pubs) and payload.pubs[0].observables is not None:
            pairs = list(zip(payload.pubs, masks, strict=True))
            masks = [mask | each.basis.support for pub, mask in pairs for each in pub.settings]
            masks += [payload.support] if payload.mitigated else []
        return max((mask.bit_count() for mask in masks), default=0)

    def _check(self, payload: Any) -> None:
        super()._check(payload)
        width = self._emulated_qubits(payload)
        if width > MOST_NOISY_QUBITS:
            raise PayloadRefused(
                f"the {self.name} emulates circuits of up to {MOST_NOISY_QUBITS} of its qubits, "
                f"not {width}"
            )


class Region(GateDevice):
    """A part of the grid, on which a task runs while others run elsewhere."""

    def __init__(self, grid: GridDevice, qubits: Sequence[int], others: set[int]) -> None:
        place = {qubit: number for number, qubit in enumerate(qubits)}
        pairs = [
            (place[a], place[b]) for a, b in grid.chip.connections if a in place and b in place
        ]
        chip = Chip(tuple(grid.chip.qubits[qubit] for qubit in qubits), tuple(pairs))
        super().__init__(grid.name, chip, grid.gates, True, grid.threads, grid.noise)
        self._errors = {
            pair: grid.pair_error(grid.neighbours([qubits[one] for one in pair], others))
            for pair in pairs
        }

    def _batch(self, payload: Any) -> list[Any]:
        return [self._fitted(circuit) for circuit in super()._batch(payload)]

    def _fitted(self, circuit: Any) -> Any:
        """The circuit on the qubits of the region; transpiled if its gates do not fit there."""
        from qiskit import transpile
        from qiskit.transpiler import CouplingMap

        pairs = [pair for a, b in self.chip.connections for pair in ((a, b), (b, a))]
        return transpile(
            compact(circuit),
            coupling_map=CouplingMap(pairs) if pairs else None,
            basis_gates=[*self._gates, *ALWAYS, "delay", "if_else"],
            layout_method="sabre",
            routing_method="sabre",
            optimization_level=0,  # whoever repeats gates means it
            seed_transpiler=0,
        )

    @cached_property
    def _simulator(self) -> Any:
        from qiskit_aer import AerSimulator

        model = noise_model(self._noise)
        for pair, error in self._errors.items():
            for locus in (pair, pair[::-1]):
                model.add_quantum_error(
                    _depolarising(error), list(TWO), list(locus), warnings=False
                )
        return AerSimulator(
            method="density_matrix", noise_model=model, max_parallel_threads=self._threads
        )


def grid(
    rows: int = 4,
    columns: int = 5,
    noise: float = 1.0,
    crosstalk: float = 0.5,
    threads: int = 1,
) -> GridDevice:
    """A noisy grid with Qiskit's standard gates.

    A qubit of another circuit next to a two-qubit gate adds `crosstalk` times the gate's error.
    """
    if rows < 1 or columns < 1 or not 1 < rows * columns <= MOST_QUBITS:
        raise UsageError(f"a grid has 2 to {MOST_QUBITS} qubits, not {rows} times {columns}")
    if not 0 < noise * TWO_QUBIT_ERROR < 1:
        raise UsageError(f"the noise is above 0 and below {1 / TWO_QUBIT_ERROR:.0f}, not {noise}")
    if not crosstalk >= 0:
        raise UsageError(f"the crosstalk is 0 or more, not {crosstalk}")
    return GridDevice(rows, columns, noise, crosstalk, threads)


@cache
def _depolarising(error: float) -> Any:
    """Aer's error of a two-qubit gate; it takes milliseconds to make."""
    from qiskit_aer.noise import depolarizing_error

    return depolarizing_error(error, 2)


def segments(path: Sequence[int], widths: Sequence[int]) -> list[list[int]]:
    """Successive pieces of a path, one per width; the qubits left over lie between them."""
    gaps = max(1, len(widths) - 1)
    spare = len(path) - sum(widths)
    found: list[list[int]] = []
    begin = 0
    for number, width in enumerate(widths):
        found.append([*path[begin : begin + width]])
        begin += width + spare * (number + 1) // gaps - spare * number // gaps
    return found


def used(circuit: Any) -> list[Any]:
    """The qubits that a Qiskit circuit uses, in order."""
    touched = {qubit for each in circuit.data if each.name not in IDLE for qubit in each.qubits}
    return [qubit for qubit in circuit.qubits if qubit in touched]


def _mask(circuit: Any) -> int:
    """The qubits that a circuit uses, qubit 0 in the lowest bit."""
    return sum(1 << circuit.find_bit(qubit).index for qubit in used(circuit))


def compact(circuit: Any) -> Any:
    """The circuit without the qubits that it does not use."""
    from qiskit import QuantumCircuit

    qubits = used(circuit)
    made = QuantumCircuit(qubits, circuit.clbits, *circuit.cregs)
    for each in circuit.data:
        kept = [qubit for qubit in each.qubits if qubit in qubits]
        if len(kept) == len(each.qubits):
            made.append(each)
        elif each.name == "barrier" and kept:
            made.barrier(kept)
    return made


def _connections(rows: int, columns: int) -> list[tuple[int, int]]:
    across = [
        (r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)
    ]
    down = [
        (r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)
    ]
    return across + down


def _path(rows: int, columns: int) -> list[int]:
    """A path through all qubits: down one column, up the next."""
    order = [range(rows), range(rows - 1, -1, -1)]
    return [row * columns + column for column in range(columns) for row in order[column % 2]]
