from __future__ import annotations

import gc

from qtide.backends.models.site_model import SiteModel
from qtide.core.job import JobContext
from qtide.strategies.strategy import strategy_names
from qtide.twin.simulation import Simulation, StrategySetup
from tests.twin.sites import loop


def test_nothing_is_kept_of_a_job_that_is_over() -> None:
    for strategy in strategy_names():
        site = SiteModel(nodes=6, scheduler="easy")
        simulation = Simulation(site, StrategySetup(strategy, 2), lambda *_: None)
        simulation.run(loop(2, 10, 10, 100.0 * number) for number in range(12))
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, JobContext)]
        assert len([job for job in kept if job.name.startswith("job-")]) <= 1, strategy
        del simulation, kept
        gc.collect()
