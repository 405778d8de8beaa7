"""A synthetic workload: arrivals by day and week, sizes, run times and limits of batch jobs.

Sizes are powers of two more often than not, run times are lognormal, and users ask for more time
than they need: the shapes that archived traces of parallel computers share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Lt

from qtide.models.strict import STRICT

if TYPE_CHECKING:  # numpy is heavy, and many who read a site's file generate nothing
    from numpy.random import Generator as Random

    from qtide.models.trace import Trace

CHUNK = 65_536
"""How many jobs are generated at once."""
DAY, WEEK = 86_400.0, 604_800.0
HOURS = (4, 3, 3, 2, 2, 2, 3, 5, 8, 11, 13, 13, 12, 13, 14, 14, 13, 11, 9, 8, 7, 6, 5, 5)
"""How many of a day's jobs are submitted in each of its hours, relative to each other."""
DAYS = (1.15, 1.2, 1.2, 1.15, 1.1, 0.6, 0.6)
"""The same for the days of a week, from Monday on."""

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class Generator:
    """What the jobs of a centre are like."""

    jobs: Annotated[int, Ge(0)] = 1000
    days: Positive = 7.0
    """In how many days they are submitted."""
    largest: Annotated[int, Ge(1)] = 64
    """The most nodes of a job."""
    smaller: Annotated[float, Gt(0), Lt(1)] = 0.5
    """How strongly small jobs prevail: the chance of each doubling of the nodes."""
    mean_run: Positive = 3600.0
    spread_run: Positive = 1.5
    """The standard deviation of the logarithm of the run time."""
    longest: Positive = DAY
    users: Annotated[int, Ge(1)] = 50
    seed: int = 0

    __pydantic_config__ = STRICT

    def chunks(self, size: int = CHUNK) -> Iterator[Trace]:
        """The jobs in the order of submission, piece by piece; the same for the same seed."""
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
        from qtide.models.trace import Trace

        return next(self.chunks(max(1, self.jobs)), Trace.of([]))

    def _jobs(self, random: Random, submit: Any) -> Trace:
        import numpy as np

        from qtide.models.trace import Trace

        number = len(submit)
        run = self._run_times(random, number)
        limit = np.ceil(run * random.choice([1, 1.5, 2, 4, 10], number) / 600) * 600
        user = np.minimum(random.zipf(1.5, number), self.users)
        return Trace(submit, self._sizes(random, number), run, limit, user)

    def _run_times(self, random: Random, number: int) -> Any:
        import numpy as np

        mean = np.log(self.mean_run) - self.spread_run**2 / 2
        return np.clip(random.lognormal(mean, self.spread_run, number), 1.0, self.longest)

    def _sizes(self, random: Random, number: int) -> Any:
        import numpy as np

        doublings = np.minimum(random.geometric(1 - self.smaller, number) - 1, 40)
        sizes = 2.0**doublings
        odd = random.random(number) < 0.25
        sizes[odd] = np.ceil(sizes[odd] * random.uniform(0.5, 1.0, int(odd.sum())))
        return np.minimum(sizes, self.largest).astype(np.int64)


def _by_calendar(days: Any) -> Any:
    """Even days of work, as seconds at which people submit: by the hour and by the weekday."""
    import numpy as np

    hours = np.concatenate([np.array(HOURS) * weight for weight in DAYS])
    edges = np.concatenate([[0.0], np.cumsum(hours / hours.sum())])
    weeks = days / 7
    whole = np.floor(weeks)
    return (whole + np.interp(weeks - whole, edges, np.linspace(0, 1, len(edges)))) * WEEK
