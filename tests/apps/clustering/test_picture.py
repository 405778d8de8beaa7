"""The picture of a consensus, checked by its pixels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from qtide.apps.clustering.tasks import MOST_DRAWN, draw_clusters

Image = np.ndarray[Any, np.dtype[np.uint8]]
LEAST = 30
"""Pixels of one colour: a point has more than this, its edge fewer."""

BLUE, ORANGE, GREEN, RED = (98, 159, 202), (255, 165, 86), (107, 188, 107), (226, 103, 104)
"""The first four colours, as they look on white."""


def drawn(file: Path, points: Any, labels: Any, score: float = 0.5) -> Image:
    draw_clusters(file, np.asarray(points, float), np.asarray(labels), score=score)
    return (imread(file)[:, :, :3] * 255).round().astype(np.uint8)


def frame(image: Image) -> tuple[slice, slice]:
    """The inside of the axes: their lines are the only long dark ones."""
    dark = image.max(axis=2) < 100
    rows, columns = (np.flatnonzero(dark.mean(axis=axis) > 0.4) for axis in (1, 0))
    return slice(rows[0] + 3, rows[-1] - 2), slice(columns[0] + 3, columns[-1] - 2)


def colours(image: Image) -> dict[tuple[int, ...], tuple[float, float]]:
    """The colours of the points inside the axes, and the middle of each one's pixels."""
    inside = image[frame(image)]
    found = {}
    values, counts = np.unique(inside.reshape(-1, 3), axis=0, return_counts=True)
    for value in values[(counts >= LEAST) & (values.min(axis=1) < 250)]:
        rows, columns = np.nonzero((inside == value).all(axis=2))
        found[tuple(map(int, value))] = (float(columns.mean()), float(rows.mean()))
    return found


@pytest.mark.parametrize("clusters", [1, 3, 18])
def test_there_are_as_many_colours_as_clusters(tmp_path: Path, clusters: int) -> None:
    points = [(n % 5, n // 5) for n in range(clusters)]
    assert len(colours(drawn(tmp_path / "p.png", points, range(clusters)))) == clusters


def test_noise_is_grey_and_no_cluster_is(tmp_path: Path) -> None:
    found = colours(drawn(tmp_path / "p.png", [(0, 0), (1, 1), (2, 0)], [-1, 0, 1]))
    grey = [colour for colour in found if max(colour) - min(colour) < 10]
    assert len(grey) == 1
    assert found[grey[0]][0] == min(column for column, _ in found.values())


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_points_are_where_they_should_be(tmp_path: Path, dimensions: int) -> None:
    """A colour's position on the picture is proportional to that of its point."""
    points = np.array([(0.0, 0.0, 9.0), (1.0, 8.0, 0.0), (4.0, 2.0, 5.0), (3.0, 6.0, 1.0)])
    image = drawn(tmp_path / "p.png", points[:, :dimensions], range(4))
    found = colours(image)
    across, down = np.array([found[hue] for hue in (BLUE, ORANGE, GREEN, RED)]).T
    upwards = points[:, 1] if dimensions > 1 else np.arange(len(points))
    assert np.ptp(across) > 300 and np.ptp(down) > 300
    assert np.abs(np.polyval(np.polyfit(points[:, 0], across, 1), points[:, 0]) - across).max() < 1
    assert np.abs(np.polyval(np.polyfit(upwards, -down, 1), upwards) + down).max() < 1
    assert across[2] > across[0] and down[np.argmax(upwards)] < down[np.argmin(upwards)]


def test_the_score_is_in_the_title(tmp_path: Path) -> None:
    points, labels = [(0, 0), (1, 1)], [0, 1]
    first, same, other = (
        drawn(tmp_path / "p.png", points, labels, score) for score in (0.5, 0.5, 0.625)
    )
    assert (first == same).all()
    rows, _, _ = np.nonzero(first != other)
    assert len(rows) > LEAST
    assert rows.max() < frame(first)[0].start


@pytest.mark.parametrize(("count", "dimensions", "clusters"), [(MOST_DRAWN + 1, 2, 3), (50, 4, 40)])
def test_many_points_and_many_clusters_fit_on_the_picture(
    tmp_path: Path, count: int, dimensions: int, clusters: int
) -> None:
    points = np.random.default_rng(0).normal(size=(count, dimensions))
    image = drawn(tmp_path / "p.png", points, np.arange(count) % clusters - 1)
    assert image.shape == (720, 840, 3)
    rows, columns = frame(image)
    beside = image[rows, columns.stop + 5 :]
    assert (beside < 255).any() == (clusters <= 20)  # the legend, if there is room for it
    assert (image[rows, columns].min(axis=2) < 250).sum() > 500
