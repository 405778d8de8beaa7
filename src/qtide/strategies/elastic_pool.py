"""The pool of `elastic`: brings nodes early, and decides about those that have nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from qtide.clusters.cluster import Node
from qtide.errors import QtideError, UsageError
from qtide.options import Option
from qtide.strategies.node_pool import NodePool
from qtide.world.world import Future

UNKNOWN_USE = 10.0
"""Seconds that a node is supposed to be used for, while nothing is known."""


def favour(word: str) -> float:
    """`time` and `nodes` are the ends of a scale from 1 to 0."""
    try:
        value = {"time": 1.0, "nodes": 0.0}.get(word)
        value = float(word) if value is None else value
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--favour is time, nodes, or a number from 0 to 1, not {word!r}")
    return value


@dataclass(frozen=True)
class ElasticOptions:
    """What its user may choose."""

    favour: Annotated[
        float, Option("What to save: time, nodes, or a number from 1 to 0.", favour, "WHAT")
    ] = 0.5
    idle_share: Annotated[
        float, Option("How long a node that came early may idle, as a share of its next use.")
    ] = 0.1


@dataclass(frozen=True)
class Upcoming:
    """The classical phase to come: when it begins (the expectation may move), and its needs."""

    begins: Callable[[], float]
    nodes: int
    seconds: float
    known: bool = True


class ElasticPool(NodePool):
    """Single nodes, each with a grant of its own."""

    def __init__(self, options: ElasticOptions, *resources: Any) -> None:
        super().__init__(*resources)
        self._options = options
        self._early = False
        self._next: Upcoming | None = None
        self._prefetch: Future[None] | None = None
        self._kept: dict[Node, Future[None]] = {}

    def expect(self, coming: Upcoming) -> None:
        """What comes next is known better now: think again about the idle nodes."""
        self._next = coming
        if self._prefetch is not None:
            self._prefetch.cancel()
        self._prefetch = self.start(self._ensure_in_time(coming)) if coming.known else None
        if not self.load:
            for node in list(self.idle):
                self.on_idle(node)

    def ensure(self, nodes: int, *, early: bool = False) -> None:
        """See to it that `nodes` nodes are here or on their way."""
        for _ in range(min(nodes, self.most) - self.size - self.coming):
            self.coming += 1  # from the decision on, so that nothing is asked for twice
            self.start(self._fetch_one(early=early))

    def on_idle(self, node: Node) -> None:
        """Keep a node that has nothing to do, or give it back."""
        if node in self._kept:
            self._kept.pop(node).cancel()
        if self._early or self._worth_keeping():
            self._kept[node] = self.start(self._reconsider(node))
        else:
            self.release_if_idle(node)

    async def replace(self) -> None:
        """In place of a lost node, as many as the tasks still need."""
        self.ensure(self.singles)

    def _worth_keeping(self) -> bool:
        """Whether the time that getting it again would cost outweighs its idling until then."""
        if self._next is None or len(self.idle) > self._next.nodes:
            return False
        delay = max(0.0, self.forecast.lead(1) - self._gap())
        favour = self._options.favour
        return favour * delay > (1 - favour) * self._gap()

    def _gap(self) -> float:
        """How long it is until the next classical phase should begin."""
        return max(0.0, self._next.begins() - self.world.now()) if self._next else 0.0

    async def _ensure_in_time(self, coming: Upcoming) -> None:
        while (pause := coming.begins() - self.forecast.lead(coming.nodes) - self.world.now()) > 0:
            await self.world.sleep(pause)
        self.ensure(coming.nodes, early=True)

    async def _fetch_one(self, *, early: bool) -> None:
        self.coming -= 1
        try:
            allocation = await self.fetch(1)
        except QtideError as error:
            self.give_up(error)
            return
        self.forecast.node_started(self.world.now() - allocation.granted)
        self._early = early
        self.join(allocation)
        self._early = False

    async def _reconsider(self, node: Node) -> None:
        """A kept node may idle until its phase begins, and then for a set share of its use."""
        use = self._next.seconds if self._next and self._next.seconds else UNKNOWN_USE
        await self.world.sleep(self._gap() + self._options.idle_share * use)
        del self._kept[node]
        if node in self.idle and not self.wanted:
            if self._gap() > 0:
                self.on_idle(node)
            else:
                self.release_if_idle(node)
