"""The pool of `elastic`: brings nodes early, and decides about those that have nothing to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from qtide.clusters.cluster import Node, NotEnoughNodes
from qtide.strategies.node_pool import NodePool
from qtide.strategies.strategy import Site, Terms
from qtide.world.world import Future

RECENT = 4
"""How many past starts of nodes count for the next."""

UNKNOWN_USE = 10.0
"""Seconds that a node is supposed to be used for, while nothing is known."""


@dataclass(frozen=True)
class Next:
    """The classical phase to come: when it begins (the expectation may move), and its needs."""

    begins: Callable[[], float]
    nodes: int
    seconds: float
    known: bool = True


class ElasticPool(NodePool):
    """Single nodes, each with a grant of its own."""

    def __init__(self, site: Site, terms: Terms) -> None:
        super().__init__(site.world, site.cluster, site.job, terms.nodes)
        self._favour = terms.favour
        self._idle_share = terms.idle_share
        self._early = False
        self._starts: deque[float] = deque(maxlen=RECENT)
        self._next: Next | None = None
        self._usher: Future[None] | None = None
        self._kept: dict[Node, Future[None]] = {}

    def expect(self, coming: Next) -> None:
        """What comes next is known better now: think again about the idle nodes."""
        self._next = coming
        if self._usher is not None:
            self._usher.cancel()
        self._usher = self.errand(self._bring_in_time(coming)) if coming.known else None
        if not self.load:
            for node in list(self.idle):
                self.spare(node)

    def bring(self, nodes: int, *, early: bool = False) -> None:
        """See to it that `nodes` nodes are here or on their way."""
        for _ in range(min(nodes, self.most) - self.size - self.coming):
            self.coming += 1  # from the decision on, so that nothing is asked for twice
            self.errand(self._bring_one(early=early))

    def spare(self, node: Node) -> None:
        """Keep a node that has nothing to do, or give it back."""
        if node in self._kept:
            self._kept.pop(node).cancel()
        if self._early or self._worth_keeping():
            self._kept[node] = self.errand(self._reconsider(node))
        else:
            self.give_back(node)

    async def replace(self) -> None:
        """In place of a lost node, as many as the tasks still need."""
        self.bring(self.singles)

    def _worth_keeping(self) -> bool:
        """Whether the time that getting it again would cost outweighs its idling until then."""
        if self._next is None or len(self.idle) > self._next.nodes:
            return False
        delay = max(0.0, self._lead(1) - self._gap())
        return self._favour * delay > (1 - self._favour) * self._gap()

    def _gap(self) -> float:
        """How long it is until the next classical phase should begin."""
        return max(0.0, self._next.begins() - self.world.now()) if self._next else 0.0

    def _lead(self, nodes: int) -> float:
        """How long it takes from asking for nodes until they can work."""
        start = sum(self._starts) / len(self._starts) if self._starts else 0.0
        return self.cluster.expected_wait(nodes) + start

    async def _bring_in_time(self, coming: Next) -> None:
        while (pause := coming.begins() - self._lead(coming.nodes) - self.world.now()) > 0:
            await self.world.sleep(pause)
        self.bring(coming.nodes, early=True)

    async def _bring_one(self, *, early: bool) -> None:
        self.coming -= 1
        try:
            allocation = await self.fetch(1)
        except NotEnoughNodes as error:
            self.give_up(error)
            return
        self._starts.append(self.world.now() - allocation.granted)
        self._early = early
        self.join(allocation)
        self._early = False

    async def _reconsider(self, node: Node) -> None:
        """A kept node may idle until its phase begins, and then for a set share of its use."""
        use = self._next.seconds if self._next and self._next.seconds else UNKNOWN_USE
        await self.world.sleep(self._gap() + self._idle_share * use)
        del self._kept[node]
        if node in self.idle and not self.wanted:
            if self._gap() > 0:
                self.spare(node)
            else:
                self.give_back(node)
