"""The fairest split of random loads by a QUBO, weight by weight: on elastic nodes and a QPU."""

import dimod
import numpy as np

import qtide

SIZE, WEIGHTS = 8, (0.5, 1.0, 2.0, 4.0)


def model(weight: float) -> dimod.BinaryQuadraticModel:
    """The two halves should weigh the same, and be as large: classical work, on a node."""
    loads = np.random.default_rng(7).integers(1, 10, SIZE)
    bonds = {(a, b): 2 * (loads[a] * loads[b] + weight) for a in range(SIZE) for b in range(a)}
    return dimod.BinaryQuadraticModel(dict.fromkeys(range(SIZE), 0.0), bonds, 0.0, "SPIN")


def imbalance(sample: dict[int, int]) -> float:
    """By how much the halves differ: classical work, on a node."""
    loads = np.random.default_rng(7).integers(1, 10, SIZE)
    return round(abs(float(sum(loads[n] * side for n, side in sample.items()))), 6)


def main() -> list[float]:
    """The imbalance that each weight leaves."""
    with qtide.session(qpu="annealer") as pool:
        sampler = pool.qpu.sampler()
        models = list(pool.map(model, WEIGHTS))
        answers = [sampler.sample(each, num_reads=50, seed=3) for each in models]
        best = [dict(answer.first.sample) for answer in answers]
        found = list(pool.map(imbalance, best))
    for weight, difference in zip(WEIGHTS, found, strict=True):
        print(f"weight {weight}: the halves differ by {difference:g}")
    return found


if __name__ == "__main__":
    main()
