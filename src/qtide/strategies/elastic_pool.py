"""Node pool of `elastic`: decides which nodes to request, keep over a gap, or release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, isfinite, isinf
from typing import Any, NamedTuple, Protocol

from qtide.backends.clusters.cluster import Node
from qtide.core.errors import QtideError
from qtide.core.forecasts import Forecast
from qtide.core.ledger import Ledger
from qtide.core.world.world import Alarm, Future
from qtide.strategies.node_pool import NodePool


class Decisions:
    """Records decisions in the ledger, each only when it changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, bool] = {}

    def forget(self) -> None:
        """Forget past decisions at the start of a new gap."""
        self._kept.clear()

    def over_a_gap(self, node: Node, verdict: NodeVerdict, **basis: float) -> None:
        """Record whether a node is kept over a gap or released."""
        if self._kept.get(node.name) == verdict.keep:
            return
        self._kept[node.name] = verdict.keep
        costs = {"idling": verdict.idling, "returning": verdict.returning}
        if isfinite(verdict.missing):
            costs["missing"] = verdict.missing
        what = "kept" if verdict.keep else "gave back"
        self._ledger.note(what, f"node/{node.name}", gap=verdict.gap, **costs, **basis)

    def ask_ahead(self, nodes: int, **basis: float) -> None:
        """Record that nodes are requested before the phase that needs them."""
        self._ledger.note("asked ahead", "nodes", nodes=nodes, **basis)


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
        merits = [self._merit(number, each.tasks) for each in stages]
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
            unused = 0.0 if number <= len(stages[n].tasks) else stages[n].lasts
            costs[n] = rate * unused + min(best, lost)
        return costs

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
        """Cost to the phase if the other nodes did the work of the `number`-th node."""
        if number > len(tasks):
            return 0.0
        if number == 1 or None in tasks:
            return inf
        known = [each or 0.0 for each in tasks]
        work, longest = sum(known), max(known)
        slower, faster = max(longest, work / (number - 1)), max(longest, work / number)
        return self._time * (slower - faster)


UNKNOWN_USE = 10.0
"""Assumed seconds of use of a node when no task durations are known."""
AGAIN = 1.0
"""Minimum seconds between checks for requesting nodes ahead, unless one is due sooner."""
SOONER = 0.75
"""Share of the time until a request seems due after which to check again."""
MOMENT = 1e-6
"""Gaps up to this many seconds count as none: rounding could keep the clock from advancing."""
SILENCE = 1.0
"""Seconds to wait for the program's next phase before deciding about idle nodes."""


class Upcoming(Protocol):
    """The upcoming classical phases as currently expected; the forecast may change."""

    def gap(self) -> float:
        """Seconds until the first of them; infinite if there is none."""

    def stages(self) -> Sequence[Stage]:
        """All of them, in order."""


@dataclass(eq=False)
class Fetch:
    """A node the pool decided to request that has not arrived yet."""

    early: bool
    begun: bool = False
    withdrawn: bool = False
    """No longer needed, though the request may still be in the cluster's queue."""
    work: Future[None] | None = None


class ElasticPool(NodePool):
    """A pool of single nodes, each with its own allocation."""

    def __init__(self, weight: float, idle_share: float, charge: float, *resources: Any) -> None:
        """`weight` is that of a second of the job's time; a node-second weighs one minus this."""
        super().__init__(*resources)
        self._idle_share = idle_share
        """How long a node that came early may idle, as a share of its next use."""
        self._trade = Trade(weight, self.forecast, self.most, charge)
        self._decisions = Decisions(self.job.ledger)
        self._next: Upcoming | None = None
        self._quiet = True
        """Whether no phase is running and the program has yet to start the next."""
        self._plan: Alarm | None = None
        """Alarm for the next check whether to request nodes ahead."""
        self._pauses = (inf, 0.0)
        """From the last check: seconds until the next request seemed due, and seconds waited."""
        self._fetches: set[Fetch] = set()
        self._kept: dict[Node, Alarm] = {}
        """For each kept node, the alarm that triggers the next decision about it."""

    @property
    def coming(self) -> int:
        """Number of nodes decided on that have not arrived yet."""
        if not self._fetches:
            return self._coming
        planned = sum(not each.begun and not each.withdrawn for each in self._fetches)
        leaving = sum(each.begun and each.withdrawn for each in self._fetches)
        return self._coming + planned - leaving

    def expect(self, upcoming: Upcoming) -> None:
        """Set the forecast of upcoming phases and decide again about the idle nodes."""
        self._next, self._quiet = upcoming, False
        self._pauses = (inf, 0.0)
        self._look_again(0.0)
        if not self.load:
            self._withdraw()
            for node in list(self.idle):
                self.on_idle(node)

    def on_done(self) -> None:
        """End a phase: put decisions off until the program starts the next one."""
        self._quiet = True
        self._decisions.forget()

    def work_on(self, tasks: Sequence[float | None]) -> None:
        """Request as many nodes as pay for these tasks, on top of those for running tasks."""
        others = max(0, self.load - len(tasks))
        held = max(0, self.size - others)
        wanted = self._trade.nodes_for(tasks, held, self._after_this_phase())
        self.ensure(wanted + others)

    def trim(self, nodes: int, seconds: float) -> None:
        """Release idle nodes that were granted together if a phase leaves too many of them idle."""
        for allocation in dict.fromkeys(self._home.values()):
            held = [node for node, home in self._home.items() if home is allocation]
            surplus = min(len(held), self.size - nodes)
            if len(held) > 1 and surplus > 0 and self._trade.too_many(surplus, nodes, seconds):
                self.release_if_idle(held[0])

    def ensure(self, nodes: int, *, early: bool = False) -> None:
        """Request nodes until `nodes` are held or on their way."""
        for _ in range(min(nodes, self.most) - self.size - self.coming):
            fetch = Fetch(early)
            self._fetches.add(fetch)
            fetch.work = self.start(self._fetch(fetch))
            fetch.work.add_done_callback(partial(self._fetched, fetch))

    def on_idle(self, node: Node) -> None:
        """Keep or release an idle node."""
        if node in self._kept:
            self._kept.pop(node).cancel()
        if not self._quiet and not self.load:
            self._withdraw()
        if self._quiet:
            self._reconsider_after(SILENCE, node)
        else:
            self._keep_or_release(node)

    def think_again(self) -> None:
        """Decide again about kept nodes: another job has stalled and may need them more."""
        if self._kept and not self._quiet:
            for node in [each for each in self._kept if each in self.idle]:
                self.on_idle(node)

    async def release_all(self) -> None:
        """Cancel all pending decisions and release every node."""
        for alarm in (self._plan, *self._kept.values()):
            if alarm is not None:
                alarm.cancel()
        self._kept.clear()
        self._plan = self._next = None
        await super().release_all()

    async def replace(self) -> None:
        """After a node loss, request as many nodes as the tasks still need."""
        self.ensure(self.singles)

    def _keep_or_release(self, node: Node) -> None:
        price = self.demand.price(self, self.cluster.size)
        number = self.size - len(self.idle) + sum([each in self.idle for each in self._kept]) + 1
        stages = self._stages()
        verdict = self._trade.over_a_gap(number, stages, price)
        wait, start = self.forecast.lead(1) - self.forecast.start(), self.forecast.start()
        self._decisions.over_a_gap(node, verdict, wait=wait, start=start, price=price)
        if verdict.keep:
            late = max(self._idle_share * self._use(stages), self._trade.patience(price))
            self._reconsider_after(verdict.gap + late, node)
        else:
            self.release_if_idle(node)
            if self._next and self._plan is None:
                self._look_again(0.0)  # the node may have come too early and be needed later

    def _stages(self) -> Sequence[Stage]:
        """The upcoming phases; overdue ones count as beginning now."""
        stages = self._next.stages() if self._next else ()
        return [each if each.gap > MOMENT else each._replace(gap=0.0) for each in stages]

    def _after_this_phase(self) -> list[Stage]:
        """The upcoming phases, with gaps counted from the expected end of the running tasks."""
        return self._after(self._stages(), self.forecast.tasks.remaining())

    def _after(self, stages: Sequence[Stage], moment: float) -> list[Stage]:
        """The same phases, with gaps counted from `moment` seconds later."""
        return [each._replace(gap=max(0.0, each.gap - moment)) for each in stages]

    def _use(self, stages: Sequence[Stage]) -> float:
        """Longest expected task of the upcoming phases, in seconds."""
        tasks = [task or 0.0 for stage in stages for task in stage.tasks]
        return max(tasks, default=0.0) or UNKNOWN_USE

    def _gap(self) -> float:
        """Expected seconds until the next classical phase; 0 if it is overdue or unknown."""
        gap = self._next.gap() if self._next else 0.0
        return gap if MOMENT < gap < inf else 0.0

    def _look_again(self, seconds: float) -> None:
        """Check again after `seconds` whether to request nodes; the forecast may change."""
        if self._plan is not None:
            self._plan.cancel()
        self._plan = self.world.alarm(seconds, self._fetch_in_time)

    def _fetch_in_time(self) -> None:
        """Request the nodes that pay for themselves ahead of the phases that need them."""
        self._plan, ahead = None, self._trade.ahead()
        early = 0.0 if self._next is None else self._next.gap() - ahead
        if early > MOMENT:  # by far the most frequent case, so it is decided without the stages
            self._pause(early)
            return
        pauses = []
        stages = self._stages()
        for n, stage in enumerate(stages):
            if stage.gap - ahead > MOMENT:
                pauses.append(stage.gap - ahead)
                continue
            later = self._after(stages[n + 1 :], stage.gap + stage.lasts)
            wanted = self._trade.nodes_for(stage.tasks, self.size, later, ahead=True)
            more = min(wanted, self.most) - self.size - self.coming
            if more > 0:
                self._decisions.ask_ahead(more, gap=stage.gap, ahead=ahead)
                self.ensure(wanted, early=True)
        if pauses:
            self._pause(min(pauses))

    def _pause(self, pause: float) -> None:
        """Check again before the next request is due, in `pause` seconds as it seems now."""
        if isinf(pause):
            return
        before, waited = self._pauses
        wait = max(SOONER * pause, min(pause, AGAIN))
        if pause > before - waited / 2:  # the due time recedes while tasks wait for a node
            wait = max(wait, min(2 * waited, AGAIN))
        self._pauses = (pause, wait)
        self._look_again(wait)

    def _fetched(self, fetch: Fetch, _: object) -> None:
        """Drop a finished request, and serve any task that still waits for nodes."""
        self._fetches.discard(fetch)
        self.see_to_waiting()

    async def _fetch(self, fetch: Fetch) -> None:
        fetch.begun = True
        try:
            allocation = await self.fetch(1)
        except QtideError as error:
            self.give_up(error)
            return
        self._fetches.discard(fetch)
        self.forecast.node_started(self.world.now() - allocation.granted)
        self.join(allocation)

    def _withdraw(self) -> None:
        """Withdraw requests made for waiting tasks if no task waits any more."""
        for fetch in [each for each in self._fetches if not each.early]:
            if fetch.work is not None and not self.wanted:
                fetch.withdrawn = True
                fetch.work.cancel()

    def _reconsider_after(self, seconds: float, node: Node) -> None:
        """Decide again about a node after `seconds`."""
        self._kept[node] = self.world.alarm(seconds, partial(self._reconsider, node))

    def _reconsider(self, node: Node) -> None:
        """Decide again about a node if it is still idle."""
        self._kept.pop(node, None)
        self._quiet = False
        if node in self.idle and not self.wanted:
            if self._gap() > 0:
                self.on_idle(node)
            else:
                self.release_if_idle(node)
