"""The trade of `elastic`: a job's time against its node-seconds, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from qtide.core.forecasts import Forecast
from qtide.strategies.malleable_task import Weights


@dataclass(frozen=True)
class NodeVerdict:
    """Whether to keep a node idle over a gap, and the expected costs behind that decision."""

    gap: float
    idling: float
    """Cost of keeping the node."""
    returning: float
    """Cost of releasing the node and requesting it again in time."""
    missing: float
    """Cost of running the next phases without it."""

    @property
    def keep(self) -> bool:
        """Whether to keep the node."""
        return self.idling <= self.returning and self.idling < self.missing


class Stage(NamedTuple):
    """An upcoming classical phase: seconds until it begins, its duration, and its tasks' durations.

    The duration of a task that never ran is None.
    """

    gap: float
    lasts: float
    tasks: Sequence[float | None]
    """Those on one node each."""
    together: int = 0
    """Number of nodes of its other tasks, which cannot do with fewer."""

    @property
    def nodes(self) -> int:
        """The most nodes that it can use."""
        return len(self.tasks) + self.together


class Advance(NamedTuple):
    """Seconds by which to request nodes before they are needed, and what that costs on average."""

    seconds: float
    cost: float


class Trade:
    """Weighs a job's time against its node-seconds, or against what the site charges for them."""

    def __init__(
        self, time_weight: float, forecast: Forecast, most: int, charge: float = 1.0
    ) -> None:
        self._time = time_weight
        self._node = (1 - time_weight) * charge
        self._forecast = forecast
        self._most = most
        """Maximum number of nodes the job may hold."""
        self._known: tuple[Sequence[float], Advance] | None = None
        """Lead times, and when to request nodes by them."""

    def over_a_gap(self, number: int, stages: Sequence[Stage], price: float = 0.0) -> NodeVerdict:
        """Weigh whether the `number`-th node should idle until the phases that need it.

        `price` is the number of seconds other jobs lose for each second the node idles. A kept node
        may idle through phases that have no task for it, or be released later.
        """
        if not stages:
            return NodeVerdict(0.0, 0.0, self._return(0.0), 0.0)
        rate = self._node + self._time * price
        merits = [self._merit(number - each.together, each.tasks) for each in stages]
        held = self.held_costs(number, stages, rate, merits)
        first = next((n for n, merit in enumerate(merits) if merit > 0), 0)
        missing, again = 0.0, inf
        for merit, each, cost in zip(merits, stages, held, strict=True):
            again = min(again, missing + self._return(each.gap) + cost)  # requested again there
            missing += merit
        return NodeVerdict(stages[first].gap, rate * stages[0].gap + held[0], again, missing)

    def held_costs(
        self, number: int, stages: Sequence[Stage], rate: float, merits: Sequence[float]
    ) -> list[float]:
        """Cost, from the start of each phase on, of holding the `number`-th node at that start.

        The cheaper of keeping it until the next phase and releasing it when the phase ends.
        """
        costs = [0.0] * len(stages)
        for n in reversed(range(len(stages))):
            end = stages[n].gap + stages[n].lasts
            best, lost = inf, 0.0
            if n + 1 < len(stages):
                best = rate * max(0.0, stages[n + 1].gap - end) + costs[n + 1]
            for m in range(n + 1, len(stages)):  # released, requested again at the m-th phase
                best = min(best, lost + self._return(stages[m].gap - end) + costs[m])
                lost += merits[m]
            unused = 0.0 if number <= stages[n].nodes else stages[n].lasts
            costs[n] = rate * unused + min(best, lost)
        return costs

    def weights(self, price: float) -> Weights:
        """How to weigh the rest of a malleable task; `price` is that of `over_a_gap`."""
        node = self._node + self._time * price
        return Weights(self._time, node, self._forecast.lead(1), self._forecast.turnaround())

    def patience(self, price: float = 0.0) -> float:
        """Seconds to keep an overdue node: until idling costs as much as requesting it again.

        The end of a quantum phase is known to the second, not to the millisecond.
        """
        lead = self._forecast.lead(1)
        again = self._time * lead + self._node * self._forecast.turnaround()
        rate = self._node + self._time * price
        return lead if again >= lead * rate else again / rate

    def nodes_for(
        self,
        tasks: Sequence[float | None],
        held: int,
        later: Sequence[Stage] = (),
        *,
        ahead: bool = False,
    ) -> int:
        """Number of nodes that pay for themselves; one per task if any task never ran.

        With `ahead`, the nodes arrive when they are needed; otherwise the tasks wait for them.
        What a node saves in the `later` phases by being held already counts in its favour.
        """
        most = min(self._most, len(tasks))
        if not tasks or None in tasks:
            return most
        work, longest = sum(each or 0.0 for each in tasks), max(each or 0.0 for each in tasks)
        lead = 0.0 if ahead else self._forecast.lead(1)
        saved, costs = 0.0, []
        for number in range(1, most + 1):
            saved += self._saved_later(number, later) if number > held else 0.0
            costs.append(self._cost(work, longest, number, held, lead) - saved)
        return 1 + costs.index(min(costs))

    def too_many(self, surplus: int, nodes: int, seconds: float) -> bool:
        """Whether idle nodes for `seconds` cost more than to request the other `nodes` again."""
        again = self._time * self._forecast.lead(nodes)
        return self._node * surplus * seconds > again + self._node * self._forecast.turnaround()

    def _saved_later(self, number: int, later: Sequence[Stage]) -> float:
        """Cost saved later by holding the `number`-th node when the current phase ends."""
        if not later:
            return 0.0
        verdict = self.over_a_gap(number, later)
        return max(0.0, min(verdict.returning, verdict.missing) - verdict.idling)

    def ahead(self) -> float:
        """Best number of seconds to request nodes before they are needed.

        This is the quantile of the observed lead times at the weight of time: requesting any
        earlier would cost as much in idle nodes as it saves in the job's time.
        """
        return self._advance().seconds

    def _advance(self) -> Advance:
        """The best time to request nodes in advance; computed anew when the lead times change."""
        leads = self._forecast.leads()
        if self._known is None or self._known[0] is not leads:
            weight = self._time / ((self._time + self._node) or 1.0)
            seconds = leads[max(0, ceil(weight * len(leads)) - 1)]
            self._known = (leads, Advance(seconds, self._asked_ahead(seconds, leads)))
        return self._known[1]

    def _cost(self, work: float, longest: float, number: int, held: int, lead: float) -> float:
        """Cost of a phase on `number` nodes; missing ones arrive after `lead` seconds."""
        more = max(0, number - held)
        if not held:
            seconds = lead + max(longest, work / number)
        else:
            seconds = max(longest, (work + more * lead) / number)
        return self._time * seconds + self._node * more * self._forecast.turnaround()

    def _return(self, gap: float) -> float:
        """Cost of releasing a node and requesting it again in time."""
        seconds, cost = self._advance()
        if gap < seconds:
            cost = self._asked_ahead(gap, self._forecast.leads())
        return cost + self._node * self._forecast.turnaround()

    def _asked_ahead(self, ahead: float, leads: Sequence[float]) -> float:
        """Mean cost, over `leads`, of late nodes (job time) and early nodes (idle node time)."""
        late = sum([each - ahead for each in leads if each > ahead])
        early = sum([ahead - each for each in leads if each < ahead])
        return (self._time * late + self._node * early) / max(1, len(leads))

    def _merit(self, number: int, tasks: Sequence[float | None]) -> float:
        """Cost to the phase if the other nodes did the work of the `number`-th node.

        Nodes of tasks that run on several come before the first.
        """
        if number > len(tasks):
            return 0.0
        if number <= 1 or None in tasks:
            return inf
        known = [each or 0.0 for each in tasks]
        work, longest = sum(known), max(known)
        slower, faster = max(longest, work / (number - 1)), max(longest, work / number)
        return self._time * (slower - faster)
