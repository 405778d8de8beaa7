"""The members of a malleable job, their communicator, and the data that moves between them.

The root decides on every change of the members. Each participant does its part while keeping what
it has, reports to the root, and learns whether the change is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from qtide.mpi import join
from qtide.mpi.communicator import Communicator
from qtide.mpi.control import (
    CHANGE_LIMIT,
    ControlClient,
    ControlServer,
    MemberClient,
    NodesLost,
    exit_now,
)
from qtide.mpi.distributed import Array, Distributed
from qtide.mpi.library import library
from qtide.mpi.watched import HANGS, MpiStuck

Blocks = dict[str, Array]
Shapes = dict[str, tuple[Any, ...]]

SLOWEST = 10e6
"""Bytes per second: slower transfers count as stuck."""


class ReplicatedState(SimpleNamespace):
    """State with the same values on every rank; newcomers get the root's."""


class MemberLeft(SystemExit):
    """This process has left the job: it exits successfully and runs its `finally` clauses."""


class Membership:
    """The current members, identified by numbers that are never reused; the root is 0."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client
        self.server = client if isinstance(client, ControlServer) else None
        """The root's end of all control connections; None on other members."""
        self.members: list[int] = [0]
        self.state = ReplicatedState()
        self.arrays: dict[str, Distributed] = {}
        self.parts: dict[str, float] = {}
        """Seconds that each part of the last change took."""
        self._change = 0
        self._site = ""
        """The program line at which the last growth took place."""
        self.comm = Communicator(library().alone)
        """One object through all changes of the members."""

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def rank(self) -> int:
        """The number of this rank; of one that has not joined, a number that no member has."""
        own = self.client.identity
        return self.members.index(own) if own in self.members else own

    @property
    def shapes(self) -> Shapes:
        """By array name, what is needed to create the array again."""
        return {name: each.terms for name, each in self.arrays.items()}

    def grow(self, ports: Sequence[str], newcomers: list[int], site: str) -> bool:
        """Let newcomers join at program line `site`; False if one was lost meanwhile."""
        members = [*self.members, *newcomers]
        self._change += 1
        if self.server is not None:
            order = {"join": ports, "change": self._change, "members": members, "new": newcomers}
            self.server.send(newcomers, order)
        watch = self._watch_change(members)

        def connect() -> Any:
            # only the root accepts; the others wait in a barrier, which can be abandoned
            pairs = [None] * len(ports) if self.server is None else join.accept(ports, watch)
            Communicator(self.comm.raw, watch).barrier()
            return join.extend(self.comm.raw, pairs, watch)

        return self._grow(members, connect, site) or self._renew()

    def arrive(self) -> str:
        """Join as a newcomer; return the program line at which the others wait."""
        assert isinstance(self.client, MemberClient)
        order = self.client.order()
        self._change, members, new = order["change"], order["members"], order["new"]
        self.members = members[: -len(new)]
        place = new.index(self.client.identity)
        watch = self._watch_change(members)
        if not self._grow(members, lambda: join.connect(order["join"], place, watch), ""):
            raise MemberLeft(0)
        return self._site

    def shrink(self, size: int) -> bool:
        """Let the last members leave so that `size` stay; False if the change was given up."""
        self._change += 1
        members, old = self.members, self.size
        stay = members[:size]

        def share() -> tuple[Any, Blocks]:
            began = time.monotonic()
            blocks = self._move(self.comm, old, size)
            self.parts = {"move": time.monotonic() - began}
            if self.client.identity not in stay:
                return None, blocks
            watch = self._watch_change(members)
            return join.split(self.comm.raw, range(size), self._change, watch), blocks

        return self._make_change(members, stay, share) or self._renew()

    def regroup(self) -> None:
        """Continue with the remaining members; terminates because the root is never lost."""
        while not self._regroup():
            continue  # another member was lost meanwhile

    def restore(self, state: ReplicatedState, shapes: Shapes) -> None:
        """Adopt a state's values and create its arrays, whose rows are filled later."""
        vars(self.state).clear()
        vars(self.state).update(vars(state))
        for name, terms in shapes.items():
            self.arrays.setdefault(name, Distributed(*terms))

    def _renew(self) -> bool:
        """Get a communicator of the same members after a change that was given up; return False.

        Messages of that change may still be on their way on the old one, and a later operation
        would take them for its own.
        """
        if self.size == 1:
            return False
        if not self._regroup(whole=True):
            raise NodesLost("a rank of the job is gone; call recover() to go on")
        return False

    def _regroup(self, *, whole: bool = False) -> bool:
        """Get a communicator of those who are left; False if that, or the `whole`, is not so."""
        if self.server is None:
            assert isinstance(self.client, MemberClient)
            order = self.client.order()
            self._change, members = order["regroup"], order["members"]
        else:
            self._change += 1
            members = [each for each in self.members if each not in self.server.lost]
            self.server.send(members, {"regroup": self._change, "members": members})
        if whole and members != self.members:
            return False
        if library().closed and len(members) > 1:
            if self.server is None:
                exit_now(1)  # the others go on without this one
            raise MpiStuck(HANGS)
        ranks = [self.members.index(each) for each in members]
        raw, watch = self.comm.raw, self._watch_change(members)
        done, comm = self._agree(members, lambda: join.split(raw, ranks, self._change, watch))
        if done:
            self._adopt(comm, members)
        return done

    def _grow(self, members: list[int], connect: Callable[[], Any], site: str) -> bool:
        old = self.size

        def share() -> tuple[Any, Blocks]:
            began = time.monotonic()
            raw = connect()
            comm = Communicator(raw, self._watch_change(members))
            state, shapes, self._site = comm.bcast((self.state, self.shapes, site))
            if comm.rank >= old:
                self.restore(state, shapes)
            connected = time.monotonic()
            blocks = self._move(comm, old, len(members))
            self.parts = {"connect": connected - began, "move": time.monotonic() - connected}
            return raw, blocks

        return self._make_change(members, members, share)

    def _make_change(
        self, members: list[int], after: list[int], share: Callable[[], tuple[Any, Blocks]]
    ) -> bool:
        """Do this member's part of a change and adopt the result if the change is made."""
        leaving = [each for each in members if each not in after]
        done, result = self._agree(members, share, leaving)
        if not done or result is None:
            return done
        if self.client.identity not in after:
            self.client.leave()
            raise MemberLeft(0)
        raw, blocks = result
        before = self.comm.raw
        self._adopt(raw, after)
        for name, block in blocks.items():
            self.arrays[name].place(self.comm.rank, self.size, block)
        if before != library().alone:
            before.Free()
        return True

    def _agree(
        self, members: list[int], share: Callable[[], Any], leaving: Sequence[int] = ()
    ) -> tuple[bool, Any]:
        """Do this member's part of a change; return whether the change is made, and the result."""
        result = None
        try:
            result = share()
            self.client.report(self._change, success=True)
        except NodesLost:
            self.client.report(self._change, success=False)
        except BaseException:
            self.client.report(self._change, success=False)
            if self.server is not None:
                self.server.decide(self._change, members)
            raise
        if self.server is not None:
            return self.server.decide(self._change, members, leaving), result
        return self.client.verdict(self._change), result

    def _move(self, comm: Communicator, old: int, new: int) -> Blocks:
        return {name: each.move(comm, old, new) for name, each in self.arrays.items()}

    def _adopt(self, raw: Any, members: list[int]) -> None:
        self.members = members
        self.comm.become(raw, partial(self.client.watch, members))

    def _watch_change(self, members: list[int]) -> Callable[[], None]:
        """Return a watch over the members during a change, which has its own time limit."""
        change = self._change
        limit = CHANGE_LIMIT + sum(each.nbytes for each in self.arrays.values()) / SLOWEST
        last = time.monotonic() + limit

        def watch() -> None:
            self.client.watch(members, change)
            if self.server is not None and time.monotonic() > last:
                raise NodesLost(f"the change of the job's size did not end within {limit:.0f} s")

        return watch
