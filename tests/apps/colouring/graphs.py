"""Graphs for tests, an exact solver of somebody else, and a way to write files."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

from ortools.sat.python import cp_model

from qtide.apps.colouring.graph import Graph

DATA = Path(__file__).with_name("data")


def mycielski(number: int) -> Graph:
    """The graph myciel`number` of DIMACS: no triangle, but `number` + 1 colours."""
    size, pairs = 2, [(0, 1)]
    for _ in range(number - 1):
        copies = [pair for a, b in pairs for pair in ((a, size + b), (b, size + a))]
        pairs += [*copies, *((size + each, 2 * size) for each in range(size))]
        size = 2 * size + 1
    return Graph.of(size, pairs)


def queens(side: int) -> Graph:
    """The squares of a chess board, joined if a queen moves from one to the other."""
    squares = [divmod(number, side) for number in range(side**2)]

    def joined(a: int, b: int) -> bool:
        down, right = (squares[a][n] - squares[b][n] for n in (0, 1))
        return 0 in (down, right) or abs(down) == abs(right)

    return Graph.of(side**2, (pair for pair in combinations(range(side**2), 2) if joined(*pair)))


def random_graph(size: int, density: float, seed: int) -> Graph:
    chance = random.Random(seed)
    pairs = combinations(range(size), 2)
    return Graph.of(size, [pair for pair in pairs if chance.random() < density])


def chromatic(graph: Graph) -> int:
    """The chromatic number by OR-tools."""
    model = cp_model.CpModel()
    colours = [model.new_int_var(0, graph.size - 1, f"{v}") for v in range(graph.size)]
    for a, b in graph.edges:
        model.add(colours[a] != colours[b])
    last = model.new_int_var(0, graph.size - 1, "last")
    model.add_max_equality(last, colours)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return int(solver.objective_value) + 1


def is_proper(graph: Graph, colours: list[int]) -> bool:
    return all(colours[a] != colours[b] for a, b in graph.edges)


def write_dimacs(file: Path, graph: Graph) -> Path:
    lines = "".join(f"e {a + 1} {b + 1}\n" for a, b in graph.edges)
    file.write_text(f"c a graph\np edge {graph.size} {len(graph.edges)}\n{lines}")
    return file
