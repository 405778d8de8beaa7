"""The jobs of other users: those of a trace, or random ones.

numpy and the modules for job traces are imported only to make jobs, as most runs that read a site
file need neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Lt

from qtide.backends.models.failures import STRICT

if TYPE_CHECKING:
    from numpy.random import Generator as NumpyRandom

    from qtide.backends.models.trace import SwfWorkload, Trace

Positive = Annotated[float, Gt(0)]
DAY, WEEK = 86_400.0, 604_800.0
HOURS = (4, 3, 3, 2, 2, 2, 3, 5, 8, 11, 13, 13, 12, 13, 14, 14, 13, 11, 9, 8, 7, 6, 5, 5)
"""Relative number of jobs submitted in each hour of a day."""
DAYS = (1.15, 1.2, 1.2, 1.15, 1.1, 0.6, 0.6)
"""Relative number of jobs submitted on each day of a week, from Monday."""


@dataclass(frozen=True)
class Generator:
    """Random generator of other users' jobs."""

    jobs: Annotated[int, Ge(0)] = 1000
    days: Positive = 7.0
    """Days over which the jobs are submitted."""
    largest: Annotated[int, Ge(1)] = 64
    """Maximum number of nodes of a job."""
    smaller: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Probability of each doubling of a job's nodes; smaller values give smaller jobs."""
    mean_run: Positive = 3600.0
    spread_run: Positive = 1.5
    """Standard deviation of the logarithm of the run time."""
    longest: Positive = DAY
    users: Annotated[int, Ge(1)] = 50
    seed: int = 0

    __pydantic_config__ = STRICT

    def chunks(self, size: int = 65_536) -> Iterator[Trace]:
        """Generate the jobs in chunks, in order of submission; reproducible by the seed."""
        import numpy as np

        random = np.random.default_rng([self.seed, self.jobs])
        last = 0.0
        for start in range(0, self.jobs, size):
            number = min(size, self.jobs - start)
            work = last + np.cumsum(random.exponential(1.0, number))
            last = float(work[-1])
            yield self._jobs(random, _by_calendar(work / self.jobs * self.days))

    def trace(self) -> Trace:
        """All jobs at once."""
        from qtide.backends.models.trace import Trace

        return next(self.chunks(max(1, self.jobs)), Trace.of([]))

    def _jobs(self, random: NumpyRandom, submit: Any) -> Trace:
        import numpy as np

        from qtide.backends.models.trace import Trace

        number = len(submit)
        mean = np.log(self.mean_run) - self.spread_run**2 / 2
        run = np.clip(random.lognormal(mean, self.spread_run, number), 1.0, self.longest)
        limit = np.ceil(run * random.choice([1, 1.5, 2, 4, 10], number) / 600) * 600
        user = np.minimum(random.zipf(1.5, number), self.users)
        sizes = 2.0 ** np.minimum(random.geometric(1 - self.smaller, number) - 1, 40)
        odd = random.random(number) < 0.25
        sizes[odd] = np.ceil(sizes[odd] * random.uniform(0.5, 1.0, int(odd.sum())))
        nodes = np.minimum(sizes, self.largest).astype(np.int64)
        return Trace(submit, nodes, run, limit, user)


def _by_calendar(days: Any) -> Any:
    """Convert evenly spread days to submission times in seconds, weighted by hour and weekday."""
    import numpy as np

    hours = np.concatenate([np.array(HOURS) * weight for weight in DAYS])
    edges = np.concatenate([[0.0], np.cumsum(hours / hours.sum())])
    weeks = days / 7
    whole = np.floor(weeks)
    return (whole + np.interp(weeks - whole, edges, np.linspace(0, 1, len(edges)))) * WEEK


@dataclass(frozen=True)
class Background:
    """Other users' jobs: a trace in the Standard Workload Format, or generated ones."""

    trace: str | None = None
    generate: Generator | None = None
    processors: bool = False
    """Whether the trace counts processors, of which a node has as many as the site says cores."""

    __pydantic_config__ = STRICT

    def __bool__(self) -> bool:
        return self.trace is not None or self.generate is not None

    def read(self, cores: int) -> SwfWorkload:
        """Read the trace; processors become nodes with so many cores."""
        from qtide.backends.models.trace import read_swf

        found = read_swf(Path(str(self.trace)))
        return found.on_nodes(cores) if self.processors else found

    def chunks(self, nodes: int, cores: int) -> Iterator[Trace]:
        """Yield the jobs that fit on `nodes` nodes with `cores` cores, in order of submission."""
        if self.trace is not None:
            yield from self.read(cores).trace.fitting(nodes).chunks()
        elif self.generate is not None:
            for chunk in self.generate.chunks():
                yield chunk.fitting(nodes)
