"""The sentences are true for the figures they are about, also if these are unfavourable."""

from qtide.core.metrics import JobTime, Metrics
from qtide.experiments.demo import about_results, about_sharing, about_strategies

JOBS = tuple(JobTime(f"job-{n}", 0.0, 1.0, 1.0) for n in range(3))


def taken(total: float, held: float, occupancy: float = 0.0) -> Metrics:
    return Metrics(jobs=JOBS, total=total, nodes_held=held, qpu_occupancy=occupancy)


def test_elastic_is_compared_with_static_and_with_the_best_others() -> None:
    said = about_strategies(
        {
            "static": taken(200, 600),
            "malleable": taken(100, 300),
            "workflow": taken(120, 200),
            "elastic": taken(110, 150),
        }
    )
    assert "0.55 × the time of static and held 0.25 × its node-seconds" in said
    assert "1.10 × the time of the fastest other strategy, malleable" in said
    assert "0.75 × the node-seconds of the thriftiest other one, workflow" in said


def test_sharing_that_pays_is_called_fast() -> None:
    said = about_sharing({"exclusive": taken(20, 1, 0.25), "shared": taken(8, 1, 0.625)})
    assert said.startswith("Sharing: 3 jobs") and "(2.50 × as fast)" in said
    assert "62% of the time instead of 25%" in said


def test_sharing_that_does_not_pay_is_called_long() -> None:
    said = about_sharing({"exclusive": taken(20, 1, 0.5), "shared": taken(25, 1, 0.4)})
    assert "(1.25 × as long)" in said and "fast" not in said


def test_results_are_told_with_their_scores() -> None:
    assert "all 10 runs of the first part found the same clusters (silhouette 0.812)" in (
        about_results(10, 0.8123, 6, 0.75)
    )
