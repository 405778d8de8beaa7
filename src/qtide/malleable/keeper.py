"""The keeper: a thread of the root that asks for nodes, starts newcomers, and gives nodes back.

The program computes on meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

from qtide.ledger.ledger import Ledger
from qtide.malleable.growth import Growth, Newcomer
from qtide.malleable.nodes import Held, Nodes, Process, ended
from qtide.mpi.hub import Hub
from qtide.mpi.newcomer import command
from qtide.mpi.station import JOIN

POLITE = 3.0
"""Seconds that a process may take to end by itself."""
CLOSE_LIMIT = 180.0
"""Seconds within which all nodes have to be given back."""
OPEN_LIMIT = 60.0
"""Seconds within which the cluster has to be reached."""


class Keeper:
    """Has one task per newcomer, from its request until its node is given back."""

    def __init__(
        self, hub: Hub, ledger: Ledger, nodes: Callable[[], Awaitable[Nodes]], first: int
    ) -> None:
        self._hub = hub
        self._ledger = ledger
        self._loop = asyncio.new_event_loop()
        self._identities, self._generations = count(first), count(1)
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._known: dict[int, Newcomer] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True, name="keeper").start()
        opening = asyncio.run_coroutine_threadsafe(_opened(nodes), self._loop)
        self._nodes = opening.result(OPEN_LIMIT)

    def grow(self, nodes: int) -> Growth:
        """Ask for so many more nodes."""
        generation = next(self._generations)
        newcomers = [
            Newcomer(next(self._identities), generation, asyncio.Event()) for _ in range(nodes)
        ]
        growth = Growth(generation, newcomers)
        for each in newcomers:
            self._known[each.identity] = each
            self._loop.call_soon_threadsafe(self._begin, growth, each)
        return growth

    def cancel(self, growth: Growth) -> None:
        """Give up what has not been taken in; whoever comes later is turned away."""
        for each in growth.newcomers:
            if not each.taken:
                each.over = True
                self._hub.dismiss(each.identity)
                self._loop.call_soon_threadsafe(self._stop, each)

    def release(self, identity: int) -> None:
        """Give the node of a member back, once its process has ended."""
        who = self._known[identity]
        self._loop.call_soon_threadsafe(who.leave.set)

    def name(self, identity: int) -> str:
        """The node of a member."""
        return self._known[identity].name

    def close(self) -> None:
        """Give everything back."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        with suppress(TimeoutError):
            closing.result(CLOSE_LIMIT)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _begin(self, growth: Growth, who: Newcomer) -> None:
        if not who.over:
            task = self._loop.create_task(self._live(growth, who))
            self._lives[who.identity] = task

    def _stop(self, who: Newcomer) -> None:
        who.leave.set()
        task = self._lives.get(who.identity)
        if task is not None and who.granted is None:
            task.cancel()

    async def _live(self, growth: Growth, who: Newcomer) -> None:
        held: Held | None = None
        try:
            with self._ledger.span("wait", "nodes", "1 node"):
                held = await self._nodes.grant()
            who.granted, who.name = time.monotonic(), held.name
            with self._ledger.span("held", f"node/{held.name}", held.label):
                await self._inhabit(growth, who, held)
        finally:
            who.over = True
            growth.news.set()
            self._lives.pop(who.identity, None)

    async def _inhabit(self, growth: Growth, who: Newcomer, held: Held) -> None:
        """Have the program run on a node until it ends or leaves; then give the node back."""
        process: Process | None = None
        starting = self._ledger.span("starting", f"node/{held.name}")

        def arrived() -> None:
            who.arrived = time.monotonic()
            starting.close()
            growth.news.set()

        try:
            if not who.leave.is_set():
                told = self._hub.expect(who.identity, who.generation, arrived)
                process = await held.start(command(sys.orig_argv, sys.argv), {JOIN: told})
                await _first(process.wait(), held.gone(), who.leave.wait())
        finally:
            starting.close()
            who.over = True
            self._hub.lose(who.identity)
            if process is not None:
                await ended(process, POLITE)
            await held.end()

    async def _close(self) -> None:
        for identity in list(self._lives):
            self._stop(self._known[identity])
        if self._lives:
            await asyncio.wait(self._lives.values())
        await self._nodes.close()


async def _opened(nodes: Callable[[], Awaitable[Nodes]]) -> Nodes:
    return await nodes()


async def _first(*works: Awaitable[object]) -> None:
    """Wait for the first of several things."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
