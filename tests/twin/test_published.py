from __future__ import annotations

import pytest

from qtide.experiments.reproduction.published import LEONARDO, QLUSTER, PublishedSite, predict

CELLS = [
    (QLUSTER, "static", 1, 120.0, 1019.58, 3058.74),
    (QLUSTER, "workflow", 2, 120.0, 1226.00, 2324.00),
    (QLUSTER, "malleable", 2, 120.0, 1127.65, 2817.73),
    (QLUSTER, "workflow", 2, 0.0, 1089.00, 2324.00),
    (LEONARDO, "malleable", 1, 0.0, 844.03, 1517.28),
]


@pytest.mark.parametrize(("site", "strategy", "jobs", "quantum", "wall", "usage"), CELLS)
def test_the_twin_is_near_what_was_published(
    site: PublishedSite, strategy: str, jobs: int, quantum: float, wall: float, usage: float
) -> None:
    found = predict(site, strategy, jobs, quantum)
    assert found.wall == pytest.approx(wall, rel=0.015)
    assert found.usage == pytest.approx(usage, rel=0.015)
