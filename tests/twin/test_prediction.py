"""Predictions from runs, against what the same jobs then take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qtide.backends.models.site_model import Delays, QpuModel, SiteModel
from qtide.core.metrics import measure
from qtide.twin.prediction import PredictionCase, predict
from qtide.twin.simulation import StrategySetup
from tests.interfaces.cli.inside import printed, refused
from tests.twin.sites import played, wide

SITE = SiteModel(
    nodes=4, delays=Delays(grant=3.0, start=0.7, release=0.2), qpu=QpuModel(offload=2.0)
)


@pytest.mark.parametrize("strategy", ["static", "workflow", "elastic"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_another_strategy_and_number_of_jobs_is_predicted(strategy: str, jobs: int) -> None:
    known = [played(SITE, StrategySetup("workflow"), [wide()])[0]]
    found = predict(known, PredictionCase(strategy, jobs, 3, 4, jobs))
    real = played(SITE, StrategySetup(strategy, jobs), [wide()] * jobs)
    total = max(span.end for spans in real for span in spans)
    held = sum(measure(spans).nodes_held for spans in real)
    assert found.wall.expected == pytest.approx(total, rel=0.02)
    assert found.node_seconds.expected == pytest.approx(held, rel=0.02)
    assert found.wall.low <= found.wall.expected <= found.wall.high


def test_runs_that_differ_widen_the_interval() -> None:
    slower = replace(
        wide(),
        steps=tuple(
            replace(step, tasks=tuple(1.1 * each for each in step.tasks)) for step in wide().steps
        ),
    )
    one, two = (played(SITE, StrategySetup("workflow"), [job])[0] for job in (slower, wide()))
    narrow = predict([two], PredictionCase("static", 1, 3, 4)).wall
    broad = predict([one, two], PredictionCase("static", 1, 3, 4)).wall
    assert broad.high - broad.low > 30 + narrow.high - narrow.low


def test_the_command_predicts_without_calling_a_task(here: Path) -> None:
    printed("run", "synthetic", "published", "--cluster", "simulated", "--name", "one")
    words = ("predict", "one", "--strategy", "static", "--nodes", 3)
    told = json.loads(printed(*words, "--jobs", 2, "--site-nodes", 6, "--json"))
    (found,) = told["predictions"]
    assert found["wall"]["expected"] == pytest.approx(997.2 + 120, rel=0.01)
    assert "from one (elastic); no task was called" in printed(*words)
    printed(
        "run", "clustering", "--blobs", 300, "--most", 1, "--cluster", "simulated", "--name", "two"
    )
    assert "different programs" in refused("predict", "one,two")
