from __future__ import annotations

import gc

from qtide.backends.models.site_model import SiteModel
from qtide.core.job import JobContext
from qtide.strategies.strategy import strategy_names
from qtide.twin.simulation import Simulation, StrategySetup
from tests.twin.sites import loop


def test_nothing_is_kept_of_a_job_that_is_over() -> None:
    for strategy in strategy_names():
        before = {id(each) for each in contexts()}  # other tests may keep theirs
        site = SiteModel(nodes=6, scheduler="easy")
        simulation = Simulation(site, StrategySetup(strategy, 2), lambda *_: None)
        simulation.run(loop(2, 10, 10, 100.0 * number) for number in range(12))
        kept = [job.name for job in contexts() if id(job) not in before]
        assert len([name for name in kept if name.startswith("job-")]) <= 1, strategy


def contexts() -> list[JobContext]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, JobContext)]
