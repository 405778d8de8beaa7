"""The pool of `elastic`: which nodes to ask for, which to keep over a gap, which to give back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, isfinite
from typing import Annotated, Any, NamedTuple

from qtide.backends.clusters.cluster import Node
from qtide.core.errors import QtideError, UsageError
from qtide.core.forecasts import Forecast
from qtide.core.ledger import Ledger
from qtide.core.options import Option, number_from
from qtide.core.world.world import Alarm, Future
from qtide.strategies.node_pool import NodePool


class Decisions:
    """Writes each change of mind once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, bool] = {}

    def forget(self) -> None:
        """A new gap begins: everything is decided anew."""
        self._kept.clear()

    def over_a_gap(self, node: Node, verdict: NodeVerdict, **basis: float) -> None:
        """A node is kept over a gap or given back."""
        if self._kept.get(node.name) == verdict.keep:
            return
        self._kept[node.name] = verdict.keep
        costs = {"idling": verdict.idling, "returning": verdict.returning}
        if isfinite(verdict.missing):
            costs["missing"] = verdict.missing
        what = "kept" if verdict.keep else "gave back"
        self._ledger.note(what, f"node/{node.name}", gap=verdict.gap, **costs, **basis)

    def ask_ahead(self, nodes: int, **basis: float) -> None:
        """Nodes are asked for before the phase that needs them."""
        self._ledger.note("asked ahead", "nodes", nodes=nodes, **basis)


@dataclass(frozen=True)
class NodeVerdict:
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


class Stage(NamedTuple):
    """A classical phase to come: when it begins, in seconds from now, how long, and its tasks.

    Of tasks that never ran, it is not known how long they take: None.
    """

    gap: float
    lasts: float
    tasks: Sequence[float | None]


class Trade:
    """Weighs one job's choices."""

    def __init__(self, time_weight: float, forecast: Forecast, most: int) -> None:
        self._time = time_weight
        self._node = 1 - time_weight
        self._forecast = forecast
        self._most = most
        """The most nodes that the job may hold."""

    def over_a_gap(self, number: int, stages: Sequence[Stage], price: float = 0.0) -> NodeVerdict:
        """Weigh whether the `number`-th node should idle until the phases that need it.

        The price is how many seconds other jobs lose by each second that it idles. In between, it
        may idle through phases that have no task for it, or be given back later on.
        """
        if not stages:
            return NodeVerdict(0.0, 0.0, self._return(0.0), 0.0)
        rate = self._node + self._time * price
        held = self.held_costs(number, stages, rate)
        merits = [self._merit(number, each.tasks) for each in stages]
        first = next((n for n, merit in enumerate(merits) if merit > 0), 0)
        missing, again = sum(merits), inf
        for n, each in enumerate(stages):  # asked for again at the n-th phase, and not before
            again = min(again, sum(merits[:n]) + self._return(each.gap) + held[n])
        return NodeVerdict(stages[first].gap, rate * stages[0].gap + held[0], again, missing)

    def held_costs(self, number: int, stages: Sequence[Stage], rate: float) -> list[float]:
        """What it costs, from the beginning of each phase on, to have the `number`-th node then.

        The best of keeping it until the next phase, and of giving it back as the phase ends.
        """
        merits = [self._merit(number, each.tasks) for each in stages]
        costs = [0.0] * len(stages)
        for n in reversed(range(len(stages))):
            end = stages[n].gap + stages[n].lasts
            best, lost = inf, 0.0
            if n + 1 < len(stages):
                best = rate * max(0.0, stages[n + 1].gap - end) + costs[n + 1]
            for m in range(n + 1, len(stages)):  # given back, and asked for again at the m-th phase
                best = min(best, lost + self._return(stages[m].gap - end) + costs[m])
                lost += merits[m]
            unused = 0.0 if number <= len(stages[n].tasks) else stages[n].lasts
            costs[n] = rate * unused + min(best, lost)
        return costs

    def patience(self, price: float = 0.0) -> float:
        """How long to keep a node that is overdue: until idling has cost as much as its return.

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
        """How many nodes pay for themselves; for tasks that never ran, one each.

        Asked for ahead of time, they come when they are needed; otherwise the tasks wait for them.
        What a node saves in the `later` phases, because it is there already, pays for it as well.
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

    def _saved_later(self, number: int, later: Sequence[Stage]) -> float:
        """What it saves to have the `number`-th node when the present phase ends."""
        if not later:
            return 0.0
        verdict = self.over_a_gap(number, later)
        return max(0.0, min(verdict.returning, verdict.missing) - verdict.idling)

    def ahead(self) -> float:
        """How long before nodes are needed it is best to ask for them.

        The quantile of the leads seen that the time weight names: asking still earlier would cost
        as much in idle nodes as it saves of the job's time.
        """
        leads = sorted(self._forecast.leads())
        return leads[max(0, ceil(self._time * len(leads)) - 1)]

    def _cost(self, work: float, longest: float, number: int, held: int, lead: float) -> float:
        """Cost of a phase on `number` nodes; missing ones arrive after `lead` seconds."""
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


UNKNOWN_USE = 10.0
"""Seconds that a node is supposed to be used for, while nothing is known."""
AGAIN = 1.0
"""Seconds before which it is not worked out again when to ask for nodes."""
MOMENT = 1e-6
"""Seconds that are no gap: by so little, floating-point numbers may fail to move the clock."""
SHARE = number_from(0)
SILENCE = 1.0
"""Seconds within which a program says what it wants next; until then nothing is decided."""


WEIGHTS = {"time": 1.0, "nodes": 0.0}
"""The weight of a second of the job's time, by what the user wants to save."""


def favour(word: str) -> str:
    """One of the two words; numbers have an option of their own."""
    if word in WEIGHTS:
        return word
    try:
        float(word)
    except ValueError:
        raise UsageError(
            f"--favour is time or nodes, not {word!r}; --time-weight takes a number from 0 to 1"
        ) from None
    raise UsageError(f"--favour is time or nodes; give the number as --time-weight {word}")


def time_weight(word: str) -> float:
    """A number from 0 to 1."""
    value = number_from(0)(word)
    if value > 1:
        raise ValueError("it should be a number from 0 to 1")
    return value


@dataclass(frozen=True)
class ElasticOptions:
    """What its user may choose."""

    favour: Annotated[str | None, Option("What to save: time or nodes.", favour, "time|nodes")] = (
        None
    )
    time_weight: Annotated[
        float,
        Option("Weight of time against nodes, 0 to 1.", time_weight),
    ] = 0.5
    idle_share: Annotated[
        float,
        Option("How long a node that came early may idle, as a share of its next use.", SHARE),
    ] = 0.1

    @property
    def weight(self) -> float:
        """The weight of a second of the job's time; a node-second has the rest."""
        return self.time_weight if self.favour is None else WEIGHTS[self.favour]


Upcoming = Callable[[], Sequence[Stage]]
"""The classical phases to come, as they are expected now: the expectation may move."""


@dataclass(eq=False)
class Fetch:
    """A node that was decided on, and has not come yet."""

    early: bool
    begun: bool = False
    withdrawn: bool = False
    """Nobody counts on it any more, though it may still be in the cluster's queue."""
    work: Future[None] | None = None


class ElasticPool(NodePool):
    """Single nodes, each with a grant of its own."""

    def __init__(self, options: ElasticOptions, *resources: Any) -> None:
        super().__init__(*resources)
        self._idle_share = options.idle_share
        self._trade = Trade(options.weight, self.forecast, self.most)
        self._decisions = Decisions(self.job.ledger)
        self._next: Upcoming | None = None
        self._quiet = True
        """Whether no phase is under way: the program is about to say what it wants."""
        self._plan: Alarm | None = None
        """When it is worked out again whether to ask for nodes ahead,"""
        self._pauses = (inf, 0.0)
        """how long it seemed to be until then the last time, and how long was waited."""
        self._fetches: set[Fetch] = set()
        self._kept: dict[Node, Alarm] = {}
        """When it is decided anew about each node that is kept."""

    @property
    def coming(self) -> int:
        """How many nodes were decided on and are not here yet."""
        if not self._fetches:
            return self._coming
        planned = sum(not each.begun and not each.withdrawn for each in self._fetches)
        leaving = sum(each.begun and each.withdrawn for each in self._fetches)
        return self._coming + planned - leaving

    def expect(self, upcoming: Upcoming) -> None:
        """What comes next is known better now: think again about the idle nodes."""
        self._next, self._quiet = upcoming, False
        self._pauses = (inf, 0.0)
        self._look_again(0.0)
        if not self.load:
            self._withdraw()
            for node in list(self.idle):
                self.on_idle(node)

    def on_done(self) -> None:
        """A phase is over: nothing is decided before the program has spoken."""
        self._quiet = True
        self._decisions.forget()

    def work_on(self, tasks: Sequence[float | None]) -> None:
        """Ask for as many nodes as pay for these tasks, and for what runs already."""
        held = max(0, self.size - (self.load - len(tasks)))
        wanted = self._trade.nodes_for(tasks, held, self._after_this_phase())
        self.ensure(wanted + self.load - len(tasks))

    def ensure(self, nodes: int, *, early: bool = False) -> None:
        """See to it that `nodes` nodes are here or on their way."""
        for _ in range(min(nodes, self.most) - self.size - self.coming):
            fetch = Fetch(early)
            self._fetches.add(fetch)
            fetch.work = self.start(self._fetch(fetch))
            fetch.work.add_done_callback(partial(self._fetched, fetch))

    def on_idle(self, node: Node) -> None:
        """Keep a node that has nothing to do, or give it back."""
        if node in self._kept:
            self._kept.pop(node).cancel()
        if not self._quiet and not self.load:
            self._withdraw()
        if self._quiet:
            self._reconsider_after(SILENCE, node)
        else:
            self._keep_or_release(node)

    def think_again(self) -> None:
        """Another job stands still: a node that is kept may be worth more to it."""
        if self._kept and not self._quiet:
            for node in [each for each in self._kept if each in self.idle]:
                self.on_idle(node)

    async def release_all(self) -> None:
        """Give everything back; nothing is decided any more."""
        for alarm in (self._plan, *self._kept.values()):
            if alarm is not None:
                alarm.cancel()
        self._kept.clear()
        self._plan = self._next = None
        await super().release_all()

    async def replace(self) -> None:
        """In place of a lost node, as many as the tasks still need."""
        self.ensure(self.singles)

    def _keep_or_release(self, node: Node) -> None:
        price = self.demand.price(self, self.cluster.size)
        number = self.size - len(self.idle) + sum(each in self.idle for each in self._kept) + 1
        verdict = self._trade.over_a_gap(number, self._stages(), price)
        wait, start = self.forecast.lead(1) - self.forecast.start(), self.forecast.start()
        self._decisions.over_a_gap(node, verdict, wait=wait, start=start, price=price)
        if verdict.keep:
            late = max(self._idle_share * self._use(), self._trade.patience(price))
            self._reconsider_after(verdict.gap + late, node)
        else:
            self.release_if_idle(node)
            if self._next and self._plan is None:
                self._look_again(0.0)  # it may have come too early, and is needed again later

    def _stages(self) -> Sequence[Stage]:
        """The phases to come; one that is overdue should begin now."""
        stages = self._next() if self._next else ()
        return [each if each.gap > MOMENT else each._replace(gap=0.0) for each in stages]

    def _after_this_phase(self) -> list[Stage]:
        """The phases to come, as seen from when the next one could begin at the earliest."""
        return self._after(self._stages(), self.forecast.tasks.remaining())

    def _after(self, stages: Sequence[Stage], moment: float) -> list[Stage]:
        """The same phases as seen from a later moment."""
        return [each._replace(gap=max(0.0, each.gap - moment)) for each in stages]

    def _use(self) -> float:
        """How long the phases to come should use a node."""
        tasks = [task or 0.0 for stage in self._stages() for task in stage.tasks]
        return max(tasks, default=0.0) or UNKNOWN_USE

    def _gap(self) -> float:
        """How long it is until the next classical phase should begin."""
        return next((each.gap for each in self._stages()), 0.0)

    def _look_again(self, seconds: float) -> None:
        """Work out after a while whether it is time to ask for nodes: what is expected may move."""
        if self._plan is not None:
            self._plan.cancel()
        self._plan = self.world.alarm(seconds, self._fetch_in_time)

    def _fetch_in_time(self) -> None:
        """Ask ahead, by as much as pays; of several nodes, for those that pay for themselves."""
        self._plan, ahead = None, self._trade.ahead()
        pauses = []
        stages = self._stages()
        for n, stage in enumerate(stages):
            later = self._after(stages[n + 1 :], stage.gap + stage.lasts)
            wanted = self._trade.nodes_for(stage.tasks, self.size, later, ahead=True)
            more = min(wanted, self.most) - self.size - self.coming
            if more > 0 and stage.gap - ahead <= MOMENT:
                self._decisions.ask_ahead(more, gap=stage.gap, ahead=ahead)
                self.ensure(wanted, early=True)
            elif stage.gap - ahead > MOMENT:
                pauses.append(stage.gap - ahead)
        if pauses:
            pause, (before, waited) = min(pauses), self._pauses
            wait = max(pause / 2, min(pause, AGAIN))
            if pause > before - waited / 2:  # the moment recedes, as tasks wait for a node
                wait = max(wait, min(2 * waited, AGAIN))
            self._pauses = (pause, wait)
            self._look_again(wait)

    def _fetched(self, fetch: Fetch, _: object) -> None:
        """Whatever became of it, nobody waits for it in vain."""
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
        """No task waits: what was asked for it is not needed any more."""
        for fetch in [each for each in self._fetches if not each.early]:
            if fetch.work is not None and not self.wanted:
                fetch.withdrawn = True
                fetch.work.cancel()

    def _reconsider_after(self, seconds: float, node: Node) -> None:
        """What was decided holds for so long."""
        self._kept[node] = self.world.alarm(seconds, partial(self._reconsider, node))

    def _reconsider(self, node: Node) -> None:
        """If a node idles still, it is decided anew."""
        self._kept.pop(node, None)
        self._quiet = False
        if node in self.idle and not self.wanted:
            if self._gap() > 0:
                self.on_idle(node)
            else:
                self.release_if_idle(node)
