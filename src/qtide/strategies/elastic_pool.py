"""Node pool of `elastic`: decides which nodes to request, keep over a gap, or release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, isinf
from typing import Any, Protocol

from qtide.backends.clusters.cluster import Node
from qtide.core.errors import QtideError
from qtide.core.ledger import Ledger
from qtide.core.world.world import Alarm, Future
from qtide.strategies.malleable_task import MalleableTask, step_of
from qtide.strategies.node_pool import NodePool
from qtide.strategies.trade import NodeVerdict, Stage, Trade


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


GROWTH_PATIENCE = 5.0
"""Seconds that a request for a malleable task waits; requests of others count as more urgent."""
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
    patience: float | None = None
    """Seconds after which it is given up, if tasks go on without the node."""
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
        self._fetches: dict[Fetch, None] = {}
        """In the order in which they were decided on."""
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
        if not self.unfinished:
            self._withdraw()
            for node in list(self.idle):
                self.on_idle(node)

    def on_done(self) -> None:
        """End a phase: put decisions off until the program starts the next one."""
        self._quiet = True
        self._decisions.forget()

    def work_on(self, tasks: Sequence[float | None], wide: Sequence[int] = ()) -> None:
        """Request as many nodes as pay for these tasks, on top of those for running tasks.

        `wide` has the numbers of nodes of the phase's other tasks. Those that need more than is
        held request them by themselves, all at once.
        """
        apart = sum(each for each in wide if each > self.size)
        others = max(0, self.load - apart - len(tasks))
        held = max(0, self.size - others)
        wanted = self._trade.nodes_for(tasks, held, self._after_this_phase())
        self.ensure(min(wanted + others, min(self.most, self.cluster.size) - apart))

    def trim(self, nodes: int, seconds: float) -> None:
        """Release idle nodes that were granted together if a phase leaves too many of them idle."""
        for allocation in dict.fromkeys(self._home.values()):
            held = [node for node, home in self._home.items() if home is allocation]
            surplus = min(len(held), self.size - nodes)
            if len(held) > 1 and surplus > 0 and self._trade.too_many(surplus, nodes, seconds):
                self.release_if_idle(held[0])

    def ensure(self, nodes: int, *, early: bool = False, patience: float | None = None) -> None:
        """Request nodes until `nodes` are held or on their way."""
        for _ in range(min(nodes, self.most) - self.size - self.coming):
            fetch = Fetch(early, patience)
            self._fetches[fetch] = None
            fetch.work = self.start(self._fetch(fetch))
            fetch.work.add_done_callback(partial(self._fetched, fetch))

    def on_idle(self, node: Node) -> None:
        """Keep or release an idle node."""
        if node in self._kept:
            self._kept.pop(node).cancel()
        if not self._quiet and not self.unfinished:
            self._withdraw()
        if self._quiet:
            self._reconsider_after(SILENCE, node)
        else:
            self._keep_or_release(node)

    def worth(self, task: MalleableTask) -> int:
        """As many nodes as pay for themselves; the fewest while other jobs wait for nodes."""
        if self.cluster.others_waiting(self.job):
            return task.least
        sizes = range(task.least, max(task.least, min(task.wanted, self.most)) + 1)
        seconds = self.forecast.tasks.by_size(step_of(task.task), sizes)
        price = self.demand.price(self, self.cluster.size)
        return self._trade.weights(price).best(task, seconds, sizes)

    def wish(self, nodes: int) -> None:
        """Request nodes that pay for themselves in malleable tasks."""
        self.ensure(self.size + nodes, patience=GROWTH_PATIENCE)

    def think_again(self) -> None:
        """Decide again about kept nodes: another job has stalled and may need them more."""
        if not self._kept:
            self.demand.unwatch(self)
        elif not self._quiet:
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
        self.ensure(self.unfinished.singles)

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
        self._fetches.pop(fetch, None)
        self.see_to_waiting()

    async def _fetch(self, fetch: Fetch) -> None:
        fetch.begun = True
        try:
            terms = {} if fetch.patience is None else {"least": 0, "patience": fetch.patience}
            allocation = await self.fetch(1, **terms)
        except QtideError as error:
            self.give_up(error)
            return
        self._fetches.pop(fetch, None)
        if allocation.nodes:
            self.forecast.node_started(self.world.now() - allocation.granted)
        self.join(allocation)

    def _withdraw(self) -> None:
        """Withdraw requests made for waiting tasks if no task waits any more.

        Those stay in the queue whose node would be kept if it came now.
        """
        fetches = [each for each in self._fetches if not each.early and not each.withdrawn]
        if not fetches or self.wanted:
            return
        stages, price = self._stages(), self.demand.price(self, self.cluster.size)
        first = self.size + self.coming - len(fetches) + 1
        for number, fetch in enumerate(fetches, first):
            if fetch.work is not None and not self._trade.over_a_gap(number, stages, price).keep:
                fetch.withdrawn = True
                fetch.work.cancel()

    def _reconsider_after(self, seconds: float, node: Node) -> None:
        """Decide again about a node after `seconds`, or when another job needs it more."""
        self.demand.watch(self, self.think_again)
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
