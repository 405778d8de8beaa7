"""Colours a graph by independent sets, on a QPU or without: qtide run examples/either.py 12"""

import dimod

from qtide import program, quantum, task

Edges = list[tuple[int, int]]


def conflicts(size: int) -> Edges:
    """Classical work, on a node: the edges of a circle with chords."""
    chords = [(n, (n + size // 3) % size) for n in range(size)]
    return [(n, (n + 1) % size) for n in range(size)] + chords


def independent(vertices: list[int], edges: Edges) -> dimod.BinaryQuadraticModel:
    """A model whose best sample is a largest set of vertices without an edge between them."""
    left = {(a, b): 2.0 for a, b in edges if a in vertices and b in vertices and a != b}
    return dimod.BinaryQuadraticModel(dict.fromkeys(vertices, -1.0), left, 0.0, "BINARY")


def exactly(model: dimod.BinaryQuadraticModel) -> dimod.SampleSet:
    """The same question without a QPU: all samples, so also the best one."""
    samples = dimod.ExactSolver().sample(model)
    best: dimod.SampleSet = samples.truncate(100)  # as many as a QPU would give
    return best


@program
async def either(size: int = 12, patience: float | None = None) -> list[list[int]]:
    """The colour classes; each is found by whichever should be faster, or be there in time."""
    edges, left, classes = await task(conflicts, size), list(range(size)), []
    while left:
        model = independent(left, edges)
        samples = await quantum(model, otherwise=task(exactly, model), patience=patience)
        chosen = [n for n in left if samples.first.sample[n]]
        classes.append(chosen)
        left = [n for n in left if n not in chosen]
    return classes
