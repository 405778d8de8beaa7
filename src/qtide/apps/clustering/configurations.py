"""The methods' parameters in each iteration, as published or derived from the data's scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qtide.apps.clustering.arrays import Numbers, Points

PUBLISHED_KMEANS = (9, 9, 8, 7, 10, 5, 4, 7, 6, 5)
PUBLISHED_EPS = (4.469, 1.603, 2.037, 2.471, 2.905, 3.339, 3.773, 4.208, 1.342, 1.776)
PUBLISHED_LINKAGE = 4
MIN_SAMPLES = 10

FEWEST_CLUSTERS, MOST_CLUSTERS = 2, 10
SAMPLE = 1000
GOLDEN = (math.sqrt(5) - 1) / 2
EXTRA_METHODS = ("hdbscan", "spectral")
"""The names in methods.EXTRAS, for drivers, which do not load scikit-learn."""


@dataclass(frozen=True, slots=True)
class MethodParameters:
    """Parameters of the methods in one iteration; extras are names in methods.EXTRAS."""

    kmeans: int
    eps: float
    linkage: int
    min_samples: int = MIN_SAMPLES
    extras: tuple[str, ...] = ()


def published_configuration(iteration: int, *, extras: tuple[str, ...] = ()) -> MethodParameters:
    """Return a row of the published table, which repeats after ten iterations."""
    row = iteration % len(PUBLISHED_EPS)
    return MethodParameters(
        PUBLISHED_KMEANS[row], PUBLISHED_EPS[row], PUBLISHED_LINKAGE, extras=extras
    )


@dataclass(frozen=True, slots=True)
class ParameterSearch:
    """A sequence of cluster counts and eps; every prefix of it spreads over the ranges."""

    fewest: int
    most: int
    least_eps: float
    greatest_eps: float
    min_samples: int = MIN_SAMPLES
    extras: tuple[str, ...] = ()

    def configuration(self, iteration: int) -> MethodParameters:
        """Return the parameters of an iteration; they depend on its number only."""
        return MethodParameters(
            self._count(0.5 + iteration * GOLDEN),
            self._eps(_reversed_bits(iteration)),
            self._count(0.25 + iteration * GOLDEN),
            self.min_samples,
            self.extras,
        )

    def _count(self, place: float) -> int:
        return self.fewest + int(place % 1.0 * (self.most - self.fewest + 1))

    def _eps(self, place: float) -> float:
        return float(self.least_eps * (self.greatest_eps / self.least_eps) ** place)


def search(points: Points, *, seed: int = 0, extras: tuple[str, ...] = ()) -> ParameterSearch:
    """Set up a search whose eps spans the distances at which these points become dense."""
    samples = min(MIN_SAMPLES, max(2, len(points) // 10))
    reach = _distances_to_neighbour(points, samples, seed)
    positive = reach[reach > 0]
    least, greatest = (
        (np.quantile(positive, 0.8), 4 * np.quantile(positive, 0.99))
        if len(positive)
        else (np.ptp(points, axis=0).max() / 1000,) * 2
    )
    most = min(MOST_CLUSTERS, len(points) - 1)
    return ParameterSearch(
        min(FEWEST_CLUSTERS, most), most, float(least), float(greatest), samples, extras
    )


def _distances_to_neighbour(points: Points, rank: int, seed: int) -> Numbers:
    """Distances from a seeded sample's points to their rank-th neighbour, counting themselves."""
    from scipy.spatial import KDTree

    generator = np.random.default_rng(seed)
    sample = generator.choice(len(points), min(SAMPLE, len(points)), replace=False)
    distances, _ = KDTree(points).query(points[np.sort(sample)], k=[rank])
    return np.asarray(distances[:, 0], dtype=np.float64)


def _reversed_bits(number: int) -> float:
    """Van der Corput's sequence, starting in the middle: 1/2, 1/4, 3/4, 1/8, …"""
    number += 1
    place, value = 0.5, 0.0
    while number:
        value += place * (number & 1)
        number >>= 1
        place /= 2
    return value
