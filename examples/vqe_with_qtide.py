"""The ground state of a small Ising chain by VQE: the plain script, on elastic nodes and a QPU."""

from itertools import pairwise
from math import pi

from qiskit import QuantumCircuit, transpile

import qtide

SPINS, FIELD, ROUNDS, SHOTS = 4, 1.0, 4, 1000


def prepared(angles: list[float]) -> list[QuantumCircuit]:
    """The ansatz, measured along z and along x: classical work, on a node."""
    circuits = []
    for along_x in (False, True):
        circuit = QuantumCircuit(SPINS)
        for layer in range(2):
            for spin in range(SPINS):
                circuit.ry(angles[layer * SPINS + spin], spin)
            for spin in range(SPINS - 1):
                circuit.cx(spin, spin + 1)
        if along_x:
            circuit.h(range(SPINS))
        circuit.measure_all()
        circuits.append(transpile(circuit, basis_gates=["rz", "sx", "cx"], seed_transpiler=1))
    return circuits


def energy(along_z: dict[str, int], along_x: dict[str, int]) -> float:
    """The energy of one point from its counts: classical work, on a node."""
    bonds = sum(
        count * sum(1 - 2 * (a != b) for a, b in pairwise(bits)) for bits, count in along_z.items()
    )
    fields = sum(count * (SPINS - 2 * bits.count("1")) for bits, count in along_x.items())
    return -(bonds + FIELD * fields) / SHOTS


def shifted(angles: list[float]) -> list[list[float]]:
    """The point itself, and two for the slope along each angle."""
    places = [(place, shift) for place in range(len(angles)) for shift in (pi / 2, -pi / 2)]
    return [angles, *([*angles[:n], angles[n] + by, *angles[n + 1 :]] for n, by in places)]


def main() -> list[float]:
    """Follow the slope, and return the energy of each round."""
    angles, found = [0.4] * (2 * SPINS), []
    with qtide.session(qpu="gate,qubits=4") as pool:
        backend = pool.qpu.backend()
        for number in range(ROUNDS):
            batches = list(pool.map(prepared, shifted(angles)))
            circuits = [circuit for batch in batches for circuit in batch]
            result = backend.run(circuits, shots=SHOTS, seed_simulator=number).result()
            counts = [result.get_counts(place) for place in range(len(circuits))]
            energies = list(pool.map(energy, counts[::2], counts[1::2]))
            slopes = zip(energies[1::2], energies[2::2], strict=True)
            angles = [a - 0.2 * (up - down) for a, (up, down) in zip(angles, slopes, strict=True)]
            found.append(energies[0])
            print(f"round {number}: energy {energies[0]:.3f}")
    return found


if __name__ == "__main__":
    main()
