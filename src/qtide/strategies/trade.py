"""The trade between time and nodes: what each choice is expected to cost, as the user weighs them.

A second of the job's time costs `favour`, a second of a node `1 - favour`. Everything else is
expectation: how long nodes take to come back, by the waits seen so far; how long tasks take, by
their last time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from qtide.forecasts.forecast import Forecast


@dataclass(frozen=True)
class Verdict:
    """Whether a node should idle over a gap, and the expected costs that this follows from."""

    gap: float
    idling: float
    """If it is kept;"""
    returning: float
    """if it is given back, and asked for again in time;"""
    missing: float
    """if the next phase does without it."""

    @property
    def keep(self) -> bool:
        """Whether to keep it."""
        return self.idling <= self.returning and self.idling < self.missing


class Trade:
    """Weighs one job's choices."""

    def __init__(self, favour: float, forecast: Forecast, most: int) -> None:
        self._time = favour
        self._node = 1 - favour
        self._forecast = forecast
        self._most = most
        """The most nodes that the job may hold."""

    def over_a_gap(
        self, number: int, tasks: Sequence[float | None], gap: float, price: float = 0.0
    ) -> Verdict:
        """Weigh whether the `number`-th node should idle over a gap before a phase of these tasks.

        The price is how many seconds other jobs lose by each second that it idles.
        """
        idling = (self._node + self._time * price) * gap
        return Verdict(gap, idling, self._return(gap), self._merit(number, tasks))

    def patience(self, price: float = 0.0) -> float:
        """How long to keep a node that is overdue: until idling has cost as much as its return.

        The end of a quantum phase is known to the second, not to the millisecond.
        """
        lead = self._forecast.lead(1)
        again = self._time * lead + self._node * self._forecast.turnaround()
        rate = self._node + self._time * price
        return lead if again >= lead * rate else again / rate

    def nodes_for(self, tasks: Sequence[float | None], held: int, *, ahead: bool = False) -> int:
        """How many nodes pay for themselves; for tasks that never ran, one each.

        Asked for ahead of time, they come when they are needed; otherwise the tasks wait for them.
        """
        most = min(self._most, len(tasks))
        if not tasks or None in tasks:
            return most
        work, longest = sum(each or 0.0 for each in tasks), max(each or 0.0 for each in tasks)
        lead = 0.0 if ahead else self._forecast.lead(1)
        costs = [self._cost(work, longest, n, held, lead) for n in range(1, most + 1)]
        return 1 + costs.index(min(costs))

    def ahead(self) -> float:
        """How long before nodes are needed it is best to ask for them.

        Of all leads seen, a share of `favour` should be no longer: to ask still earlier then costs
        as much in nodes that idle as it saves of the job's time.
        """
        leads = sorted(self._forecast.leads())
        return leads[max(0, ceil(self._time * len(leads)) - 1)]

    def _cost(self, work: float, longest: float, number: int, held: int, lead: float) -> float:
        """Of a phase on so many nodes, those that are not held coming after a while."""
        more = max(0, number - held)
        if not held:
            seconds = lead + max(longest, work / number)
        else:
            seconds = max(longest, (work + more * lead) / number)
        return self._time * seconds + self._node * more * self._forecast.turnaround()

    def _return(self, gap: float) -> float:
        """What it costs to give a node back and to ask for it again in time."""
        ahead = min(self.ahead(), gap)
        cost = self._asked_ahead(ahead, self._forecast.leads())
        return cost + self._node * self._forecast.turnaround()

    def _asked_ahead(self, ahead: float, leads: Sequence[float]) -> float:
        """Of late nodes the time, of early ones their idling, on average over the waits seen."""
        late = sum([each - ahead for each in leads if each > ahead])
        early = sum([ahead - each for each in leads if each < ahead])
        return (self._time * late + self._node * early) / max(1, len(leads))

    def _merit(self, number: int, tasks: Sequence[float | None]) -> float:
        """What the phase would lose without the `number`-th node: the others would do its work."""
        known = [each for each in tasks if each is not None]
        if number > len(tasks):
            return 0.0
        if number == 1 or len(known) < len(tasks):
            return inf
        work, longest = sum(known), max(known)
        slower, faster = max(longest, work / (number - 1)), max(longest, work / number)
        return self._time * (slower - faster)
