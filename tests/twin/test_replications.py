from __future__ import annotations

from dataclasses import fields, replace
from math import sqrt
from pathlib import Path
from statistics import stdev

import pytest

from qtide.backends.models.background import Background, Generator
from qtide.backends.models.site_model import Mix, SiteModel
from qtide.backends.models.trace import write_swf
from qtide.twin.replications import MeanEstimate, SimulationFigures, replicate, simulate
from qtide.twin.simulation import StrategySetup
from qtide.twin.simulation_page import NAMES, shown, write_page
from qtide.twin.workload import HybridWorkload
from tests.twin.sites import BUSY

SITE = replace(BUSY, hybrid=Mix(jobs=15, days=0.1, variation=0.3))
SETUPS = [StrategySetup("static", 2), StrategySetup("elastic", 2)]


def test_the_result_does_not_depend_on_the_number_of_cores() -> None:
    one, two = (simulate(SITE, SETUPS, 2, cores) for cores in (1, 2))
    assert one == two
    first, second = one[0].replications
    assert first != second  # each replication has seeds of its own


def test_the_workload_is_the_same_for_every_strategy() -> None:
    static, elastic = simulate(SITE, SETUPS, 1)
    assert static.replications[0].jobs == elastic.replications[0].jobs == 15
    assert static.estimates()["node_seconds"].mean > elastic.estimates()["node_seconds"].mean


def test_a_share_of_a_trace_becomes_hybrid(tmp_path: Path) -> None:
    assert BUSY.background.generate is not None
    trace = BUSY.background.generate.trace()
    write_swf(tmp_path / "trace.swf", trace, 32)
    others = Background(str(tmp_path / "trace.swf"))
    site = replace(BUSY, background=others, hybrid=Mix(share=0.25))
    workload = HybridWorkload.of(site, 0)
    hybrids = list(workload.hybrids())
    rest = sum(len(chunk) for others in workload.others() for chunk in others)
    assert len(hybrids) + rest == len(trace) and 100 < len(hybrids) < 200
    assert sum(job.shortest for job in hybrids) < float(trace.run.sum())


def test_shares_of_the_time_count_from_the_first_job_of_anybody() -> None:
    """Others' jobs that ran before the first hybrid job have their time in it as well."""
    others = Generator(jobs=80, days=0.5, largest=4, mean_run=3600)
    mix = Mix(jobs=1, days=0.5)
    site = SiteModel(nodes=4, scheduler="easy", background=Background(generate=others), hybrid=mix)
    for seed in range(3):
        found = replicate(site, StrategySetup("elastic"), seed)
        assert 0.5 < found.utilisation <= 1.0


def test_a_confidence_interval_is_students() -> None:
    assert MeanEstimate.of([1.0, 3.0]).half == pytest.approx(12.71, rel=0.001)
    for number, student in ((6, 2.571), (7, 2.447), (12, 2.201), (31, 2.042)):
        values = [0.0, 2.0] * (number // 2) + [1.0] * (number % 2)
        half = student * stdev(values) / sqrt(number)
        assert MeanEstimate.of(values).half == pytest.approx(half, rel=0.001)
    assert MeanEstimate.of([5.0]) == MeanEstimate(5.0, 0.0)


def test_the_page_has_every_case(tmp_path: Path) -> None:
    cases = simulate(SiteModel(nodes=8, hybrid=Mix(jobs=3)), SETUPS, 2)
    write_page(tmp_path / "page.html", "A <site>", cases)
    text = (tmp_path / "page.html").read_text()
    assert "A &lt;site&gt;" in text and "static, 2 vQPUs" in text and "elastic, 2 vQPUs" in text
    for each in fields(SimulationFigures):
        assert f'<th scope="row">{NAMES[each.name]}</th>' in text
    assert "prefers-color-scheme: dark" in text and "#3b6ea8" not in text
    assert "Node-seconds of a hybrid job: lowest with elastic, 2 vQPUs" in text


def test_a_figure_has_as_many_digits_as_are_known() -> None:
    assert shown(MeanEstimate(17_218.4, 11_658.0)) == "17,218 ± 11,658"
    assert shown(MeanEstimate(0.5619, 0.0432)) == "0.562 ± 0.043"
    assert (shown(MeanEstimate(60.0, 0.0)), shown(MeanEstimate(0.0, 0.0))) == ("60.0", "0")
    assert shown(MeanEstimate(2991.6096, 2.3e-9)) == "2,991.6"
    assert shown(MeanEstimate(2.6e-7, 2.7e-7)) == "0"
