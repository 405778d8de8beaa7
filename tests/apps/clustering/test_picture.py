from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from qtide.apps.clustering.picture import MOST_DRAWN, draw_clusters


@pytest.mark.parametrize(
    ("count", "dimensions", "clusters"), [(10, 1, 2), (MOST_DRAWN + 1, 2, 3), (50, 4, 40)]
)
def test_a_png_of_any_point_set_is_written(
    tmp_path: Path, count: int, dimensions: int, clusters: int
) -> None:
    points = np.random.default_rng(0).normal(size=(count, dimensions))
    labels = np.arange(count) % clusters - 1
    draw_clusters(tmp_path / "picture.png", points, labels, score=0.5)
    assert imread(tmp_path / "picture.png").shape == (720, 840, 4)
