"""Graph colouring, with dimod: models on three nodes, samples by the QPU, their energy on one."""

from __future__ import annotations

from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst

NODES, EDGES = 60, 300


def ground(seed: int) -> float:
    """The lowest energy that greedy flips find in a random model."""
    import dimod

    model = dimod.generators.gnm_random_bqm(NODES, EDGES, "BINARY", random_state=seed)
    state = dict.fromkeys(model.variables, 0)
    for _ in range(2):
        for variable in model.variables:
            flipped = state | {variable: 1 - state[variable]}
            state = min(state, flipped, key=model.energy)
    return float(model.energy(state))


def lowest(energies: list[float]) -> float:
    """The best part."""
    import dimod

    return float(dimod.SampleSet.from_samples([{"a": 0}], "BINARY", min(energies)).first.energy)


@program
async def colouring(rounds: int = 4, quantum_s: float = 0.5) -> float:
    """Add up the best energy of each round."""
    total = 0.0
    for n in range(rounds):
        parts = await classical(*(task(ground, 3 * n + part) for part in range(3)))
        await quantum(Burst(quantum_s))
        total += await task(lowest, parts)
    return round(total, 9)
