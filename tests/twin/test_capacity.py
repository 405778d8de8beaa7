from __future__ import annotations

import pytest

from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.models.site_model import SiteModel
from qtide.twin import capacity
from qtide.twin.capacity import Loop, best_offer, mean_value_analysis, simulate_sharing

FIXED = SiteModel(service=ServiceModel("fifo"))
RANDOM = SiteModel(qpu=QpuModel(spread="exponential"), service=ServiceModel())


def test_with_constant_times_nobody_waits_up_to_the_knee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PAYLOADS", 60)
    best, rows = best_offer(Loop(10.0, 30.0), FIXED, longest=5.0)
    assert best == 4
    assert [row.wait.mean for row in rows] == pytest.approx([0, 0, 0, 10, 20], abs=0.5)
    assert [row.occupancy.mean for row in rows] == pytest.approx([0.5, 0.75, 1, 1, 1], abs=0.001)


def test_with_random_times_the_service_waits_as_the_formula_says() -> None:
    found = simulate_sharing(Loop(10.0, 20.0), RANDOM, 3)
    formula = mean_value_analysis(10.0, 20.0, 3)[-1]
    assert abs(found.wait.mean - formula.wait) < 2 * found.wait.half
    assert abs(found.occupancy.mean - formula.occupancy) < 2 * found.occupancy.half
    assert found.usual.mean > found.wait.mean
