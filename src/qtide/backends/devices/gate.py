"""Gate devices emulated by Qiskit Aer: IQM's five-qubit star, or a chip of any shape.

Circuits run as submitted, without transpiling: that takes fifty times as long as running one, and
the noise of a gate depends on where it acts. So a circuit must fit the chip, as on a real device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from random import Random
from statistics import mean
from typing import Any

from qtide.backends.devices.chip import (
    NATIVE,
    NOISELESS,
    ONE,
    OPERATIONS,
    STAR,
    THREE,
    TWO,
    Chip,
    expected_fidelity,
)
from qtide.backends.devices.circuits import (
    Gates,
    check_batch,
    check_circuit,
    circuits_of,
    iqm_size,
    qiskit_size,
    registers,
)
from qtide.backends.devices.device import Device, DeviceFailed, WorkPiece
from qtide.backends.devices.estimation import Readout, calibrations, estimates, measured
from qtide.backends.devices.profile import Cost
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.backends.payloads.formats.pubs import Pauli, Pub, Pubs
from qtide.backends.payloads.payload import Burst, PayloadRefused, decode, encode
from qtide.backends.payloads.shots import Estimates, Shots
from qtide.core.errors import UsageError

MOST_CIRCUITS = 1_000
MOST_EXECUTIONS = 10_000
"""The most bound circuits that PUBs may run."""
MOST_INSTRUCTIONS = 10_000
MOST_QUBITS = 24
"""The limit of an ideal chip: the state vector of 24 qubits takes 256 MB."""

MOST_NOISY_QUBITS = 10
"""The limit of a noisy chip: its density matrix is the square in size; ten qubits take 0.25 s."""


SEED_STEP = 2113
"""By how much Aer's seeds of successive circuits of a batch differ."""

CIRCUIT_S, SHOT_S = 2e-3, 8e-6
"""Emulator seconds per circuit and per shot of a circuit."""
GATE_S, AMPLITUDE_S, STATE_S = 1e-5, 4e-10, 2e-8
"""Emulator seconds per gate, per amplitude changed by a gate, and per amplitude of the state."""


class GateDevice(Device):
    """Takes IQM circuits, OpenQASM, Qiskit circuits and PUBs; returns a list of `Shots`.

    The answer to PUBs with observables is a list of `Estimates`.
    """

    extra = "gate"

    def __init__(
        self,
        name: str,
        chip: Chip,
        gates: Gates,
        noisy: bool = False,
        threads: int = 1,
        noise: float = 1.0,
    ) -> None:
        self.name = name
        self.chip = chip
        self._gates = gates
        self._noisy = noisy
        self._noise = noise
        self._threads = threads

    def properties(self) -> dict[str, Any]:
        """Formats, chip and limits; `gates` use Qiskit's names, `operations` IQM's."""
        names = self.chip.qubits
        return {
            "formats": ["iqm", "qpy", "qasm2", "qasm3", "pubs", "burst"],
            "qubits": list(names),
            "connections": [[names[a], names[b]] for a, b in self.chip.connections],
            "gates": list(self._gates),
            "operations": list(OPERATIONS),
            "emulated": True,
            "noisy": self._noisy,
            "metrics": metrics(self.chip, self._noise if self._noisy else 0.0),
            "most": {
                "shots": self.most_shots,
                "circuits": MOST_CIRCUITS,
                "executions": MOST_EXECUTIONS,
                "instructions": MOST_INSTRUCTIONS,
                "qubits": len(names),
            },
        }

    def cost(self, payload: Any) -> Cost | None:
        """Emulator time, which grows with the number of amplitudes and of gates.

        A circuit that resets, branches or measures before its end is recomputed for each shot.
        """
        circuits = self._circuits(payload)
        if isinstance(payload, IqmBatch):
            sizes = [iqm_size(circuit) for circuit in payload.circuits]
        elif isinstance(payload, Pubs):
            sizes = [qiskit_size(p.circuit) for p in payload.pubs for _ in range(p.executions)]
        else:
            sizes = [qiskit_size(circuit) for circuit in circuits]
        width = self._emulated_qubits(payload)
        amplitudes = 4**width if self._noisy else 2**width
        fixed = shot = 0.0
        for gates, each_shot in sizes:
            once = gates * (GATE_S + AMPLITUDE_S * amplitudes) + STATE_S * amplitudes
            fixed += CIRCUIT_S + (0.0 if each_shot else once)
            shot += SHOT_S + (once if each_shot else 0.0)
        return Cost(fixed, shot)

    def fidelity(self, payload: Any) -> float | None:
        """The mean of the circuits' expected fidelities, by the metrics of its calibration."""
        circuits = self._circuits(payload)
        known = metrics(self.chip, self._noise if self._noisy else 0.0)
        return mean(expected_fidelity(one, self.chip.qubits, known) for one in circuits)

    def pieces(
        self, payload: Any, shots: int, seed: int, chunk: float, done: int
    ) -> Iterator[WorkPiece]:
        """As many circuits or PUBs at a time as the emulator should need `chunk` seconds for."""
        cost = None if isinstance(payload, Burst) else self.cost(payload)
        whole = payload.pubs if isinstance(payload, Pubs) else getattr(payload, "circuits", payload)
        if cost is None or not isinstance(whole, list | tuple) or mitigated(payload):
            yield WorkPiece(1, 1.0, self.solve(payload, shots, seed))
            return
        step = max(1, int(len(whole) * chunk / cost.seconds(shots)))
        for first in range(done, len(whole), step):
            last = min(first + step, len(whole))
            answer = self._solve(payload, shots, seed, slice(first, last))
            yield WorkPiece(last, last / len(whole), answer)

    def warm_up(self) -> None:
        """Import Qiskit and prepare the emulator."""
        measure = Operation("measure", self.chip.qubits[:1], {"key": "m"})
        self._solve(IqmBatch((IqmCircuit("warm up", (measure,)),)), shots=1, seed=0)

    def _check(self, payload: Any) -> None:
        if isinstance(payload, IqmBatch):
            self._check_size(len(payload.circuits))
            check_batch(payload, self.chip, MOST_INSTRUCTIONS)
            return
        if isinstance(payload, Pubs):
            self._check_pubs(payload)
            return
        batch = self._batch(payload)
        self._check_size(len(batch))
        for number, circuit in enumerate(batch):
            check_circuit(circuit, number, self.chip, self._gates, MOST_INSTRUCTIONS)

    def _solve(self, payload: Any, shots: int, seed: int, part: slice = slice(None)) -> Any:
        """Run the circuits or PUBs of a part; each gets the seed that it has in the whole."""
        if isinstance(payload, IqmBatch):
            made = circuits_of(payload, self.chip)[part]
        elif isinstance(payload, Pubs):
            return self._solve_pubs(payload, shots, seed, part)
        else:
            batch = self._batch(payload)
            made = [(one, registers(one, i)) for i, one in enumerate(batch)][part]
        seed = seed % 2**31 + SEED_STEP * (part.start or 0)
        values = self._run([circuit for circuit, _ in made], shots, seed)
        return [Shots.of(registers, one) for (_, registers), one in zip(made, values, strict=True)]

    def _run(self, batch: list[Any], shots: int, seed: int) -> list[list[int]]:
        """Run the circuits; for each, return one number per shot."""
        found = self._experiments(batch, shots, seed, memory=True)
        return [[int(one, 16) for one in each.data.memory] for each in found]

    def _experiments(self, batch: list[Any], shots: int, seed: int, **options: Any) -> list[Any]:
        """Run the circuits; return Aer's results, one per circuit and set of values."""
        job = self._simulator.run(batch, shots=shots, seed_simulator=seed, **options)
        result = job.result()
        for number, each in enumerate(result.results):
            if not each.success:
                raise DeviceFailed(f"the {self.name} failed on circuit {number}: {each.status}")
        if not result.success:
            raise DeviceFailed(f"the {self.name} failed: {result.status}")
        found: list[Any] = result.results
        return found

    def _check_pubs(self, payload: Pubs) -> None:
        """Check each circuit as if it had the first of its parameter sets."""
        for number, pub in enumerate(payload.pubs):
            circuit = pub.circuit
            if pub.observables is not None:
                circuit = measured(circuit, Pauli(0, 2**circuit.num_qubits - 1))
            bound = circuit.assign_parameters(pub.rows[0])
            check_circuit(bound, number, self.chip, self._gates, MOST_INSTRUCTIONS)
        runs = sum(pub.executions for pub in payload.pubs)
        if runs > MOST_EXECUTIONS:
            raise PayloadRefused(
                f"the {self.name} runs up to {MOST_EXECUTIONS} circuits for one call, not {runs}: "
                "one per parameter set and basis; split the sweep"
            )

    def _solve_pubs(
        self, payload: Pubs, shots: int, seed: int, part: slice
    ) -> list[Shots] | list[Estimates]:
        """Run every PUB; the first has the task's seed, each other one has a seed of its own."""
        seeds = [
            seed % 2**31,
            *(Random(f"{seed} {i}").getrandbits(31) for i in range(1, len(payload.pubs))),
        ]
        pubs = list(zip(payload.pubs, seeds, strict=True))[part]
        if payload.pubs[0].observables is None:
            first = part.start or 0
            return [
                self._sample(pub, n, pub.shots(shots), s) for n, (pub, s) in enumerate(pubs, first)
            ]
        calibrated = payload.mitigated and payload.support  # the identity alone is not measured
        readout = self._readout(payload, shots, seed) if calibrated else None
        return [self._estimate(pub, pub.shots(shots), s, readout) for pub, s in pubs]

    def _sample(self, pub: Pub, number: int, shots: int, seed: int) -> Shots:
        """The shots of all parameter sets, one set after another."""
        runs = self._bound([pub.circuit], [pub.rows], shots, seed, memory=True)
        values = [int(one, 16) for each in runs for one in each.data.memory]
        return Shots.of(registers(pub.circuit, number), values)

    def _estimate(self, pub: Pub, shots: int, seed: int, readout: Readout | None) -> Estimates:
        circuits = [measured(pub.circuit, setting.basis) for setting in pub.settings]
        rows = [pub.rows[list(setting.sets)] for setting in pub.settings]
        below = pub.circuit.num_clbits
        runs = iter(self._bound(circuits, rows, shots, seed) if circuits else [])
        counts = [[_counts(next(runs), below) for _ in setting.sets] for setting in pub.settings]
        return estimates(pub, counts, readout)

    def _readout(self, payload: Pubs, shots: int, seed: int) -> Readout:
        width = max(pub.circuit.num_qubits for pub in payload.pubs)
        seed = Random(f"{seed} readout").getrandbits(31)
        circuits = list(calibrations(width, payload.support))
        zeros, ones = self._experiments(circuits, shots, seed)
        return Readout(_counts(zeros), _counts(ones), width)

    def _bound(
        self, circuits: list[Any], rows: list[Any], shots: int, seed: int, **options: Any
    ) -> list[Any]:
        """Run each circuit with each of its rows of values; Aer binds them, which is fastest.

        It cannot bind within branches, so circuits with branches are bound here.
        """
        if any(one.has_control_flow_op() for one in circuits):
            pairs = zip(circuits, rows, strict=True)
            batch = [one.assign_parameters(row) for one, some in pairs for row in some]
            return self._experiments(batch, shots, seed, **options)
        binds = [
            {parameter: some[:, place] for place, parameter in enumerate(one.parameters)}
            for one, some in zip(circuits, rows, strict=True)
        ]
        return self._experiments(circuits, shots, seed, parameter_binds=binds, **options)

    @cached_property
    def _simulator(self) -> Any:
        from qiskit_aer import AerSimulator

        options: dict[str, Any] = {"max_parallel_threads": self._threads}
        if not self._noisy:
            return AerSimulator(method="statevector", **options)
        return AerSimulator(
            method="density_matrix", noise_model=noise_model(self._noise), **options
        )

    def _emulated_qubits(self, payload: Any) -> int:
        """The number of qubits that the emulator has to keep the state of."""
        return max((circuit.num_qubits for circuit in self._circuits(payload)), default=0)

    def _circuits(self, payload: Any) -> Sequence[Any]:
        """All circuits of a payload, as Qiskit circuits."""
        if isinstance(payload, IqmBatch):
            return [one for one, _ in circuits_of(payload, self.chip)]
        return payload.circuits if isinstance(payload, Pubs) else self._batch(payload)

    def _batch(self, payload: Any) -> list[Any]:
        """The payload, one or several Qiskit circuits or OpenQASM texts, as Qiskit circuits."""
        from qiskit import QuantumCircuit

        batch = list(payload) if isinstance(payload, list | tuple) else [payload]
        if batch and all(isinstance(one, str) for one in batch):
            batch = decode(encode(batch))
        for one in batch:
            if not isinstance(one, QuantumCircuit):
                kind = type(one).__name__
                raise PayloadRefused(f"the {self.name} takes circuits, not {kind}")
        return batch

    def _check_size(self, size: int) -> None:
        if not 0 < size <= MOST_CIRCUITS:
            raise PayloadRefused(f"the {self.name} takes 1 to {MOST_CIRCUITS} circuits, not {size}")


def mitigated(payload: Any) -> bool:
    """Whether all PUBs of a payload share circuits that calibrate the readout."""
    return isinstance(payload, Pubs) and payload.mitigated


def _counts(experiment: Any, below: int = 0) -> dict[int, int]:
    """The counts of the classical bits from `below` on."""
    found: dict[int, int] = {}
    for key, often in experiment.data.counts.items():
        value = int(key, 16) >> below
        found[value] = found.get(value, 0) + often
    return found


def star(noisy: bool = False, threads: int = 1) -> GateDevice:
    """IQM's five-qubit star, with its native gates."""
    return GateDevice("star", STAR, NATIVE, noisy, threads)


def noisy_star(threads: int = 1) -> GateDevice:
    """IQM's five-qubit star with noise."""
    return GateDevice("noisy-star", STAR, NATIVE, noisy=True, threads=threads)


def gate(
    qubits: int = 5,
    connections: list[list[int]] | None = None,
    noisy: bool = False,
    threads: int = 1,
    noise: float = 1.0,
) -> GateDevice:
    """A chip with Qiskit's standard gates; three-qubit gates only if ideal and fully connected."""
    most = MOST_NOISY_QUBITS if noisy else MOST_QUBITS
    if not 1 <= qubits <= most:
        kind = "a noisy" if noisy else "an ideal"
        raise UsageError(f"{kind} gate device has 1 to {most} qubits, not {qubits}")
    if not 0 < noise * TWO_QUBIT_ERROR < 1:
        raise UsageError(f"the noise is above 0 and below {1 / TWO_QUBIT_ERROR:.0f}, not {noise}")
    chip = Chip.of(qubits, connections)
    gates = noisy_gates() if noisy else ONE | TWO | (THREE if chip.complete else {})
    return GateDevice("gate", chip, gates, noisy, threads, noise)


def noisy_gates() -> Gates:
    """The gates of a chip with noise; controlled rotations have to be transpiled."""
    return ONE | {name: each for name, each in TWO.items() if name not in NOISELESS}


ONE_QUBIT_ERROR = 0.0005
TWO_QUBIT_ERROR = 0.034
READ_OUT_ERROR = 0.021


def noise_model(scale: float = 1.0) -> Any:
    """Uniform noise on all qubits, which fits a chip of any size; `scale` multiplies the errors."""
    from qiskit_aer.noise import NoiseModel, ReadoutError, depolarizing_error

    model = NoiseModel()
    one, two = scale * ONE_QUBIT_ERROR, scale * TWO_QUBIT_ERROR
    model.add_all_qubit_quantum_error(depolarizing_error(one, 1), list(ONE))
    model.add_all_qubit_quantum_error(depolarizing_error(two, 2), list(TWO))
    wrong = scale * READ_OUT_ERROR
    readout = ReadoutError([[1 - wrong, wrong], [wrong, 1 - wrong]])
    model.add_all_qubit_readout_error(readout)
    return model


def metrics(chip: Chip, scale: float) -> dict[str, float]:
    """The average fidelities of the noise model, by the names that IQM's clients look for.

    There are no T1 and T2 among them: the noise does not depend on time.
    """
    found = {}
    for qubit in chip.qubits:
        found[f"metrics.rb.prx.default.{qubit}.fidelity"] = 1 - scale * ONE_QUBIT_ERROR / 2
        readout = f"metrics.ssro.measure.default.{qubit}"
        found[f"{readout}.fidelity"] = 1 - scale * READ_OUT_ERROR
        found[f"{readout}.error_0_to_1"] = found[f"{readout}.error_1_to_0"] = scale * READ_OUT_ERROR
    for one, other in chip.connections:
        pair = f"{chip.qubits[one]}__{chip.qubits[other]}"
        found[f"metrics.irb.cz.default.{pair}.fidelity"] = 1 - scale * TWO_QUBIT_ERROR * 3 / 4
    return found
