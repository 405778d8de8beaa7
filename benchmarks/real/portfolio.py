"""A portfolio, with numpy: scenarios on three nodes, a choice by the QPU, its risk on one node."""

from __future__ import annotations

from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst

ASSETS, DAYS = 60, 4000


def covariance(seed: int) -> list[float]:
    """The variances of a third of the scenarios."""
    import numpy as np

    returns = np.random.default_rng(seed).standard_normal((DAYS, ASSETS))
    return [float(each) for each in np.linalg.eigvalsh(np.cov(returns.T))]


def risk(variances: list[list[float]]) -> float:
    """One figure for all of them."""
    import numpy as np

    return float(np.sqrt(np.mean(variances)))


@program
async def portfolio(rounds: int = 4, quantum_s: float = 0.5) -> float:
    """Add up the risk of each round."""
    total = 0.0
    for n in range(rounds):
        parts = await classical(*(task(covariance, 3 * n + part) for part in range(3)))
        await quantum(Burst(quantum_s))
        total += await task(risk, parts)
    return round(total, 9)
