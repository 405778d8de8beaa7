"""Gate devices, emulated by Qiskit Aer: IQM's five-qubit star, or a chip of any shape.

Circuits run as submitted: transpiling takes fifty times as long as running one, and the noise of a
gate depends on where it acts. So a circuit has to fit the chip, as on a real device.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from qtide.devices import circuits, native
from qtide.devices.chip import STAR, Chip
from qtide.devices.device import Device, DeviceFailed
from qtide.devices.gates import NATIVE, ONE, OPERATIONS, THREE, TWO
from qtide.errors import UsageError
from qtide.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.payloads.payload import PayloadRefused
from qtide.payloads.shots import Shots

MOST_CIRCUITS = 1_000
MOST_INSTRUCTIONS = 10_000
MOST_QUBITS = 24
"""Their state vector takes 256 MB."""

MOST_NOISY_QUBITS = 10
"""Noise needs a density matrix, the square in size: at ten qubits, a quarter of a second."""


class GateDevice(Device):
    """Takes IQM's circuits, OpenQASM 3 and Qiskit circuits, and gives a list of `Shots`."""

    extra = "gate"

    def __init__(
        self, name: str, chip: Chip, gates: circuits.Gates, noisy: bool = False, threads: int = 1
    ) -> None:
        self.name = name
        self.chip = chip
        self._gates = gates
        self._noisy = noisy
        self._threads = threads

    def properties(self) -> dict[str, Any]:
        """`gates` have Qiskit's names, `operations` IQM's."""
        names = self.chip.qubits
        return {
            "formats": ["iqm", "qpy", "qasm3", "burst"],
            "qubits": list(names),
            "connections": [[names[a], names[b]] for a, b in self.chip.connections],
            "gates": list(self._gates),
            "operations": list(OPERATIONS),
            "noisy": self._noisy,
            "most": {
                "shots": self.most_shots,
                "circuits": MOST_CIRCUITS,
                "instructions": MOST_INSTRUCTIONS,
                "qubits": len(names),
            },
        }

    def warm_up(self) -> None:
        """Import Qiskit and make the emulator ready."""
        measure = Operation("measure", self.chip.qubits[:1], {"key": "m"})
        self._solve(IqmBatch((IqmCircuit("warm up", (measure,)),)), shots=1, seed=0)

    def _check(self, payload: Any) -> None:
        if isinstance(payload, IqmBatch):
            self._check_size(len(payload.circuits))
            native.check_batch(payload, self.chip, MOST_INSTRUCTIONS)
            return
        batch = self._batch(payload)
        self._check_size(len(batch))
        for number, circuit in enumerate(batch):
            circuits.check_circuit(circuit, number, self.chip, self._gates, MOST_INSTRUCTIONS)

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        if isinstance(payload, IqmBatch):
            made = native.circuits_of(payload, self.chip)
        else:
            batch = self._batch(payload)
            made = [(one, circuits.registers(one, i)) for i, one in enumerate(batch)]
        values = self._run([circuit for circuit, _ in made], shots, seed)
        return [Shots.of(registers, one) for (_, registers), one in zip(made, values, strict=True)]

    def _run(self, batch: list[Any], shots: int, seed: int) -> list[list[int]]:
        """For each circuit, one number per shot."""
        job = self._simulator.run(batch, shots=shots, seed_simulator=seed % 2**31, memory=True)
        result = job.result()
        for number, each in enumerate(result.results):
            if not each.success:
                raise DeviceFailed(f"the {self.name} failed on circuit {number}: {each.status}")
        if not result.success:
            raise DeviceFailed(f"the {self.name} failed: {result.status}")
        return [[int(one, 16) for one in each.data.memory] for each in result.results]

    @cached_property
    def _simulator(self) -> Any:
        from qiskit_aer import AerSimulator

        options: dict[str, Any] = {"max_parallel_threads": self._threads}
        if not self._noisy:
            return AerSimulator(method="statevector", **options)
        from qtide.devices.noise import noise_model

        return AerSimulator(method="density_matrix", noise_model=noise_model(), **options)

    def _batch(self, payload: Any) -> list[Any]:
        """Qiskit circuits, from one or several of them or of OpenQASM 3 texts."""
        from qiskit import QuantumCircuit

        batch = list(payload) if isinstance(payload, list | tuple) else [payload]
        if batch and all(isinstance(one, str) for one in batch):
            from qtide.payloads.encoded import decode, encode

            batch = decode(encode(batch))
        for one in batch:
            if not isinstance(one, QuantumCircuit):
                kind = type(one).__name__
                raise PayloadRefused(f"the {self.name} takes circuits, not {kind}")
        return batch

    def _check_size(self, size: int) -> None:
        if not 0 < size <= MOST_CIRCUITS:
            raise PayloadRefused(f"the {self.name} takes 1 to {MOST_CIRCUITS} circuits, not {size}")


def star(noisy: bool = False, threads: int = 1) -> GateDevice:
    """IQM's five qubits around the third, with its native gates."""
    return GateDevice("star", STAR, NATIVE, noisy, threads)


def noisy_star(threads: int = 1) -> GateDevice:
    """The same with noise."""
    return GateDevice("noisy-star", STAR, NATIVE, noisy=True, threads=threads)


def gate(
    qubits: int = 5,
    connections: list[list[int]] | None = None,
    noisy: bool = False,
    threads: int = 1,
) -> GateDevice:
    """A chip with Qiskit's standard gates; three-qubit gates only if ideal and fully connected."""
    most = MOST_NOISY_QUBITS if noisy else MOST_QUBITS
    if not 1 <= qubits <= most:
        kind = "a noisy" if noisy else "an ideal"
        raise UsageError(f"{kind} gate device has 1 to {most} qubits, not {qubits}")
    chip = Chip.of(qubits, connections)
    gates = ONE | TWO | (THREE if chip.complete and not noisy else {})
    return GateDevice("gate", chip, gates, noisy, threads)
