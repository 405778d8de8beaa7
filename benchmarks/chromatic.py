"""Colouring, proven: the application's bounds and search beside CP-SAT on the same graphs.

CP-SAT gets a model that suits it: a Boolean per vertex and colour, a clique that is coloured
in advance, one worker, and our upper bound to start from. Both have to prove the same number.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from claims import Claim, at_most, conclude
from ortools.sat.python import cp_model

from qtide.apps.colouring.bounds import Bounds, bounds
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.reading import read_graph
from qtide.apps.colouring.search import first_piece, kernel_of, search_pieces

sys.path.append(str(Path(__file__).parent.parent))
from tests.apps.colouring.graphs import DATA, mycielski, queens, random_graph

BUDGET = 20_000_000
LIMIT = 60.0
"""Seconds for CP-SAT."""
GRAPHS = {
    "mug88_1": read_graph(DATA / "mug88_1.col").graph,
    "myciel5": mycielski(5),
    "myciel6": mycielski(6),
    "queen6_6": queens(6),
    "queen7_7": queens(7),
    **{f"G(50, 0.3), seed {seed}": random_graph(50, 0.3, seed) for seed in range(6)},
    **{f"G(50, 0.5), seed {seed}": random_graph(50, 0.5, seed) for seed in range(2)},
}
NAMED = ("mug88_1", "myciel6", "G(50, 0.3)")
"""The graphs that have to be proven in at most ten times CP-SAT's time."""


def ours(graph: Graph) -> tuple[int | None, float]:
    """The proven number of colours, or None, and the processor seconds."""
    began = time.process_time()
    found = bounds(graph, greedy=True)
    number = len(found.classes)
    while number > found.lower:
        kernel = kernel_of(graph, number - 1)
        verdict = first_piece(kernel)
        if verdict.open and not verdict.refuted:
            verdict = search_pieces(kernel, verdict.open, BUDGET)
        if verdict.classes is None:
            return (None if verdict.open else number), time.process_time() - began
        number = len(verdict.classes)
    return number, time.process_time() - began


def theirs(graph: Graph, known: Bounds) -> tuple[int | None, float]:
    """The same by CP-SAT, one number of colours after the other."""
    began = time.process_time()
    number = len(known.classes)
    while number > len(known.clique):
        model = cp_model.CpModel()
        has = [[model.new_bool_var("") for _ in range(number - 1)] for _ in range(graph.size)]
        for row in has:
            model.add_exactly_one(row)
        for a, b in graph.edges:
            for one, other in zip(has[a], has[b], strict=True):
                model.add_bool_or(one.negated(), other.negated())
        for colour, vertex in enumerate(known.clique):
            model.add(has[vertex][colour] == 1)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = LIMIT
        status = solver.solve(model)
        if status == cp_model.UNKNOWN:
            return None, time.process_time() - began
        if status == cp_model.INFEASIBLE:
            break
        number -= 1
    return number, time.process_time() - began


def main() -> None:
    """Colour every graph by both."""
    claims: list[Claim] = []
    print(f"{'graph':20}{'vertices':>9}{'edges':>7}{'ours':>6}{'s':>9}{'CP-SAT':>8}{'s':>9}")
    different = 0
    for name, graph in GRAPHS.items():
        one, seconds = ours(graph)
        other, peer = theirs(graph, bounds(graph, greedy=True))
        different += None not in (one, other) and one != other
        row = f"{name:20}{graph.size:9}{len(graph.edges):7}{one or '?':>6}{seconds:9.3f}"
        print(f"{row}{other or '?':>8}{peer:9.3f}", flush=True)
        if name.startswith(NAMED):
            ratio = seconds / peer if one is not None else float("inf")
            claims.append(at_most(f"{name}: proven, times CP-SAT's seconds", ratio, 10))
    claims.append(at_most("graphs on which both differ", different, 0))
    conclude("chromatic", claims)


if __name__ == "__main__":
    main()
