"""A hybrid loop of one's own: nodes estimate, the QPU chooses, until the rounds are over.

Run it: qtide run examples/rounds.py --rounds 3
"""

import random

import dimod

from qtide import classical, program, quantum, task

ASSETS = 6


def risks(seed: int, trials: int) -> list[list[float]]:
    """How strongly the returns of assets vary together, from simulated days."""
    chance = random.Random(seed)
    days = [_day(chance) for _ in range(trials)]
    return [
        [sum(day[a] * day[b] for day in days) / trials for b in range(ASSETS)]
        for a in range(ASSETS)
    ]


def gains(seed: int) -> list[float]:
    """What each asset is expected to bring."""
    chance = random.Random(seed)
    return [chance.uniform(0.5, 1.5) for _ in range(ASSETS)]


def model(expected: list[float], varying: list[list[float]]) -> dimod.BinaryQuadraticModel:
    """Which assets to hold: gains are wanted, risks shared with others are not."""
    linear = {a: varying[a][a] - expected[a] for a in range(ASSETS)}
    pairs = {(a, b): 2 * varying[a][b] for a in range(ASSETS) for b in range(a)}
    return dimod.BinaryQuadraticModel(linear, pairs, 0.0, "BINARY")


@program(nodes=2)
async def rounds(rounds: int = 3, trials: int = 500, seed: int = 0) -> list[list[int]]:
    """The assets to hold, round by round; the two tasks take very different times."""
    held = []
    for number in range(rounds):
        varying, expected = await classical(
            task(risks, seed + number, trials), task(gains, seed + number)
        )
        samples = await quantum(model(expected, varying))
        held.append([int(asset) for asset, taken in samples.first.sample.items() if taken])
    return held


def _day(chance: random.Random) -> list[float]:
    market = chance.gauss(0.0, 0.4)
    return [market + chance.gauss(0.0, 0.1 * (1 + asset)) for asset in range(ASSETS)]
