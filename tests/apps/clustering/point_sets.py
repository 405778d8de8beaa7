"""Point sets for the tests: any dimension from 1 to 10, with duplicates, lines and far corners."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from qtide.apps.clustering.arrays import Labels, Points


@dataclass(frozen=True)
class Case:
    """Points with labels."""

    points: Points
    labels: Labels


@st.composite
def lattices(draw: st.DrawFn, most_dimensions: int = 10, most_points: int = 40) -> Points:
    """Points with integer coordinates, so that distances are exact and many are equal."""
    dimensions = draw(st.integers(1, most_dimensions))
    count = draw(st.integers(3, most_points))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    points = generator.integers(0, draw(st.integers(1, 12)), (count, dimensions)).astype(float)
    if draw(st.booleans()):  # all on one line
        points = points[:, :1] * np.ones(dimensions)
    return points + draw(st.sampled_from([0.0, -1000.0]))


@st.composite
def clouds(draw: st.DrawFn, most_dimensions: int = 10, most_points: int = 40) -> Points:
    """Points in general position, of any scale."""
    dimensions = draw(st.integers(1, most_dimensions))
    count = draw(st.integers(3, most_points))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    groups = generator.normal(0, 5, (draw(st.integers(1, 4)), dimensions))
    points = groups[generator.integers(0, len(groups), count)]
    points = points + generator.normal(0, 1, points.shape)
    return points * draw(st.sampled_from([1e-3, 1.0, 1e4]))


@st.composite
def labelled(draw: st.DrawFn, points: st.SearchStrategy[Points]) -> Case:
    """Points with labels from -1 upwards, not all of them used."""
    found = draw(points)
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    labels = generator.integers(-1, draw(st.integers(0, len(found))), len(found))
    return Case(found, labels)


def same_partition(first: Labels, second: Labels) -> bool:
    """Whether two labellings differ only in the names of the clusters."""
    pairs = {(int(one), int(other)) for one, other in zip(first, second, strict=True)}
    return len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})
