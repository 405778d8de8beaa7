"""The smallest hybrid program. Run it: qtide run examples/hello.py 5"""

import dimod

from qtide import program, quantum, task


def weights(size: int) -> dict[int, float]:
    """Classical work, on a node."""
    return {number: -1.0 - number / 10 for number in range(size)}


@program
async def hello(size: int = 4) -> dict[int, int]:
    """The best independent set on a ring of weighted vertices."""
    linear = await task(weights, size)
    ring = {(n, (n + 1) % size): 3.0 for n in range(size)}
    samples = await quantum(dimod.BinaryQuadraticModel(linear, ring, 0.0, "BINARY"))
    return {int(vertex): int(taken) for vertex, taken in samples.first.sample.items()}
