from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from qtide.backends.models.site_model import Delays, QpuModel, SiteModel
from qtide.twin.advice import Prices, advise, strategy_map, with_ratio
from qtide.twin.calibrate import calibrate, job_of
from qtide.twin.play import StrategyOptions
from qtide.twin.vqpus import growth, offer, sharing
from tests.twin.sites import played, wide

SITE = SiteModel(nodes=3, delays=Delays(start=1.0))


def test_who_pays_for_nodes_is_not_advised_to_hold_them() -> None:
    advice = advise(wide(), SITE, 10.0)
    assert advice.strategy == "elastic" and "next best" in advice.why
    static = next(each for each in advice.expected if each.strategy == "static")
    assert static.wall.low < static.wall.expected < static.wall.high


def test_who_pays_only_for_time_holds_everything_where_requests_wait() -> None:
    advice = advise(wide(), SITE, 600.0, Prices(node=0.0, qpu=0.0))
    assert advice.strategy == "static"


def test_the_advice_flips_with_the_wait() -> None:
    prices = Prices(node=0.01, qpu=0.0)
    chart = strategy_map(wide(), SITE, [0.1, 10.0], [0.0, 600.0], prices)
    assert len({cell.strategy for row in chart for cell in row}) > 1
    for row, wait in zip(chart, (0.0, 600.0), strict=True):
        for cell, ratio in zip(row, (0.1, 10.0), strict=True):
            found = advise(with_ratio(wide(), ratio), SITE, wait, prices, spread=(1.0,)).expected
            costs = {each.strategy: each.cost(prices) for each in found}
            own = costs.pop(cell.strategy)
            assert cell.margin == pytest.approx(max(0.0, min(costs.values()) / own - 1))


def test_a_ratio_is_that_of_quantum_to_classical_time() -> None:
    job = with_ratio(wide(), 2.0)
    assert job.quantum == pytest.approx(2 * (job.shortest - job.quantum))


def test_sharing_is_what_mean_value_analysis_says() -> None:
    assert sharing(1.0, 8.5, 8)[-1].occupancy == pytest.approx(0.737, abs=0.001)
    best = offer(10.0, 90.0, 30.0)
    assert best.wait <= 30 < sharing(10.0, 90.0, best.jobs + 1)[-1].wait


def test_a_second_qpu_buys_time() -> None:
    one, two = (growth(1000, 30.0, 0.5, qpus) for qpus in (1, 2))
    assert one.occupancy == pytest.approx(1000 * 30 / 86_400)
    assert one.wait == pytest.approx(30 * one.occupancy / (1 - one.occupancy))
    assert two.wait < one.wait and two.full_in > one.full_in
    assert growth(5000, 30.0, 0.5, 1).wait == inf


def test_calibration_finds_the_parameters_of_the_site_again() -> None:
    qpu = QpuModel(offload=3.5)
    site = SiteModel(nodes=3, delays=Delays(grant=4.0, start=0.7, release=0.2), qpu=qpu)
    (spans,) = played(site, StrategyOptions("workflow"), [wide()])
    found = calibrate([spans])
    fitted = {name: each.value for name, each in found.parameters.items()}
    assert fitted == pytest.approx(
        {"grant": 4.0, "start": 0.7, "release": 0.2, "step": 0.0, "offload": 3.5}
    )
    twin = played(found.site(3), StrategyOptions("workflow"), [job_of(spans, 3), job_of(spans, 3)])
    real = played(site, StrategyOptions("workflow"), [wide(), wide()])
    assert twin[-1][0].end == pytest.approx(real[-1][0].end)


def test_a_calibration_is_a_site_file() -> None:
    (spans,) = played(SITE, StrategyOptions("workflow"), [replace(wide(), nodes=3)])
    text = calibrate([spans]).toml(3)
    assert text.startswith("nodes = 3\n\n[delays]\ngrant = 0  #") and "[qpu]\noffload" in text
