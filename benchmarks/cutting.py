"""QAOA, whole and cut: how long one expectation value takes, and one set of samples.

Peers in the same run: qiskit-addon-cutting on Aer, its circuits cut and transpiled once and then
only bound, for cut circuits; Aer, transpiled before, for whole ones. All use one thread, and take
turns, so that a busy machine slows all of them; times are processor time, the median of all turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from claims import Claim, at_least, at_most, conclude

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit, Sampler
from qtide.apps.colouring.cutting.cut_plan import GraphPartition
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import PENALTY, Angles, Ansatz

sys.path.append(str(Path(__file__).parent.parent))
from tests.apps.colouring.cutting.addon import Addon
from tests.apps.colouring.cutting.clusters import PUBLISHED

SHOTS = 1000
TURNS = 7
ANGLES = np.array([0.4, 0.5])
THREE_CLUSTERS = GraphPartition(
    Graph.of(7, [(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (3, 4), (0, 5), (0, 6), (5, 6)]),
    (0,),
    ((1, 2), (3, 4), (5, 6)),
)
QUBITS = (10, 16, 20)

Calls = dict[str, Callable[[], Any]]


def taken(calls: Calls, slow: str, repeat: int = 1) -> dict[str, float]:
    """Milliseconds of processor time per call, the median over turns in which each has its go.

    The peer, the slow one, is called once per turn, the others `repeat` times.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 1):
        for name, call in calls.items():
            times = 1 if name == slow else repeat
            began = time.process_time()
            for _ in range(times):
                call()
            if turn:  # the first one compiles, and fills caches
                found[name].append(1e3 * (time.process_time() - began) / times)
    return {name: median(each) for name, each in found.items()}


def show(case: str, times: dict[str, float]) -> None:
    """A line of the table."""
    print(f"{case:48}" + "  ".join(f"{name} {ms:.4g} ms" for name, ms in times.items()))


def cut_case(case: str, partition: GraphPartition) -> dict[str, float]:
    """One expectation value of a cut circuit: exactly, with shots, by the addon."""
    circuit, rng = CutCircuit(partition, 1), np.random.default_rng(0)
    exact, addon = circuit.probabilities(ANGLES), Addon(partition, SHOTS)
    times = taken(
        {
            "exact": lambda: circuit.expectation(circuit.probabilities(ANGLES)),
            "shots": lambda: circuit.estimate(circuit.sampled(ANGLES, SHOTS, rng), SHOTS),
            "1000 samples": lambda: Sampler(circuit, exact).draw(1000, rng),
            "addon": lambda: addon.expectation(ANGLES),
        },
        slow="addon",
        repeat=100,
    )
    show(f"{case}, {addon.circuits} circuits of the addon", times)
    times["difference"] = max(difference(circuit, angles) for angles in rng.normal(size=(50, 2)))
    return times


def difference(circuit: CutCircuit, angles: Angles) -> float:
    """Between the cut expectation value, exactly, and that of the uncut state."""
    cut = circuit.expectation(circuit.probabilities(angles))
    return abs(cut - Ansatz(circuit.graph).expectation(angles))


def cuts() -> list[Claim]:
    """The 8-vertex case, and one with two cuts."""
    one, two = (
        cut_case("8 vertices, 1 cut", PUBLISHED),
        cut_case("7 vertices, 2 cuts", THREE_CLUSTERS),
    )
    return [
        at_most("1 cut: one exact expectation value, ms", one["exact"], 1),
        at_most(f"1 cut: with {SHOTS} shots per circuit and its error, ms", one["shots"], 2),
        at_least("1 cut: times as fast as the addon, shots", one["addon"] / one["shots"], 100),
        at_most("2 cuts: one exact expectation value, ms", two["exact"], 20),
        at_most(f"2 cuts: with {SHOTS} shots per circuit and its error, ms", two["shots"], 20),
        at_least("2 cuts: times as fast as the addon, shots", two["addon"] / two["shots"], 100),
        at_most("cut and uncut differ by", max(one["difference"], two["difference"]), 1e-10),
    ]


def regular(size: int) -> Graph:
    """A 3-regular graph: a cycle and its longest chords."""
    ring = [(n, (n + 1) % size) for n in range(size)]
    return Graph.of(size, ring + [(n, n + size // 2) for n in range(size // 2)])


def with_aer(graph: Graph) -> Callable[[], float]:
    """The expectation value of the same circuit by Aer, transpiled before."""
    from qiskit import QuantumCircuit, transpile
    from qiskit.quantum_info import SparsePauliOp
    from qiskit_aer import AerSimulator

    circuit = QuantumCircuit(graph.size)
    circuit.h(range(graph.size))
    fields = np.full(graph.size, 0.5)
    for a, b in graph.edges:
        circuit.rzz(ANGLES[0] * PENALTY / 2, a, b)
        fields[[a, b]] -= PENALTY / 4
    for vertex, field in enumerate(fields):
        circuit.rz(2 * ANGLES[0] * field, vertex)
    circuit.rx(2 * ANGLES[1], range(graph.size))
    terms = [("Z", [vertex], field) for vertex, field in enumerate(fields)]
    terms += [("ZZ", list(edge), PENALTY / 4) for edge in graph.edges]
    cost = SparsePauliOp.from_sparse_list(terms, graph.size)
    circuit.save_expectation_value(cost, range(graph.size), label="cost")
    simulator = AerSimulator(method="statevector", max_parallel_threads=1)
    ready = transpile(circuit, simulator, num_processes=1)
    constant = -graph.size / 2 + PENALTY * len(graph.edges) / 4
    return lambda: constant + float(simulator.run(ready).result().data()["cost"])


def whole() -> list[Claim]:
    """Uncut circuits of 10 to 20 qubits, and the gradient."""
    for size in QUBITS:
        ansatz, aer = Ansatz(regular(size)), with_aer(regular(size))
        times = taken(
            {
                "qtide": lambda ansatz=ansatz: ansatz.expectation(ANGLES),  # type: ignore[misc]
                "gradient": lambda ansatz=ansatz: ansatz.gradient(ANGLES),  # type: ignore[misc]
                "Aer": aer,
            },
            slow="Aer",
            repeat=100 if size < 16 else 1,
        )
        apart = abs(ansatz.expectation(ANGLES) - aer())
        show(f"{size} qubits, whole", times)
    return [
        at_most(f"{QUBITS[-1]} qubits: one expectation value, ms", times["qtide"], 45),
        at_least(f"{QUBITS[-1]} qubits: times as fast as Aer", times["Aer"] / times["qtide"], 10),
        at_most(f"{QUBITS[-1]} qubits: qtide and Aer differ by", apart, 1e-9),
    ]


def main() -> None:
    """Measure everything."""
    conclude("cutting", cuts() + whole())


if __name__ == "__main__":
    main()
