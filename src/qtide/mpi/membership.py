"""The processes of a program that was started as several: all of them found the job together."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from qtide.mpi import join
from qtide.mpi.communicator import Communicator
from qtide.mpi.control import TURN_LIMIT, ControlClient, MemberClient, NodesLost
from qtide.mpi.distributed import Array, Distributed
from qtide.mpi.library import Launcher, library, progress

if TYPE_CHECKING:
    from qtide.mpi.control import ControlServer


def gathered_founders(hub: ControlServer, launcher: Launcher) -> list[str]:
    """Meet all other processes; gives the names of their hosts, different ones for each."""
    hosts: list[str] = []

    def publish(told: list[str]) -> None:
        hosts.extend(launcher.exchanged(told[0].replace(" ", ",")))

    hub.gather(range(1, launcher.size), publish)
    names = [socket.gethostname(), *hosts[1:]]
    return [f"{name}.{at}" if name in names[:at] else name for at, name in enumerate(names)][1:]


def told_by_launcher(launcher: Launcher) -> str:
    """What a process other than the root has to know of it."""
    host, port, _, generation, key = launcher.exchanged(socket.gethostname())[0].split(",")
    return f"{host} {port} {launcher.rank} {generation} {key}"


LOOK = 0.005
"""Seconds between two looks at whether newcomers have arrived."""


@dataclass(eq=False)
class Newcomer:
    """A process that is to join; moments are in seconds of the monotonic clock."""

    identity: int
    generation: int
    leave: asyncio.Event
    asked: float = field(default_factory=time.monotonic)
    granted: float | None = None
    arrived: float | None = None
    over: bool = False
    taken: bool = False
    """Whether it has become a member."""
    name: str = ""

    @property
    def ready(self) -> bool:
        """Whether it waits to be taken in."""
        return self.arrived is not None and not (self.over or self.taken)

    @property
    def pending(self) -> bool:
        """Whether it may still come."""
        return self.arrived is None and not self.over


class Growth:
    """All newcomers of one request. Its generation tells them from those of an earlier one."""

    def __init__(self, generation: int, newcomers: list[Newcomer]) -> None:
        self.generation = generation
        self.newcomers = newcomers
        self.news = threading.Event()

    @property
    def ready(self) -> list[Newcomer]:
        """Those that wait to be taken in."""
        return [each for each in self.newcomers if each.ready]

    @property
    def pending(self) -> bool:
        """Whether more may come."""
        return any(each.pending for each in self.newcomers)

    @property
    def finished(self) -> bool:
        """Whether nobody is left to be taken in."""
        return not (self.pending or self.ready)

    def wait(self, seconds: float, watch: Callable[[], None]) -> None:
        """Wait until all have arrived, but no longer than so many seconds."""
        last = time.monotonic() + seconds
        while self.pending and (left := last - time.monotonic()) > 0:
            watch()
            progress()
            if self.news.wait(min(left, LOOK)):
                self.news.clear()


Blocks = dict[str, Array]

SLOWEST = 10e6
"""Bytes per second: data that moves more slowly than this counts as stuck."""


class ReplicatedState(SimpleNamespace):
    """What every rank has, with the same values; newcomers get those of the root."""


class MemberLeft(SystemExit):
    """This process has left the job: it ends, with all its `finally` clauses, successfully."""


class Membership:
    """Members are known by numbers that are never used again; the root is 0."""

    def __init__(self, station: ControlClient, hub: ControlServer | None = None) -> None:
        self.station = station
        self.hub = hub
        """The root's station; None on other members."""
        self.members: list[int] = [0]
        self.state = ReplicatedState()
        self.arrays: dict[str, Distributed] = {}
        self.turn = 0
        self.parts: dict[str, float] = {}
        """Seconds of the last change's parts."""
        self._adopt(library().MPI.COMM_SELF.Dup(), [0])

    def grow(self, ports: Sequence[str], newcomers: list[int], site: str) -> bool:
        """Take newcomers in; False if one of them was lost meanwhile."""
        members = [*self.members, *newcomers]
        self.turn += 1
        if self.hub is not None:
            word = {"join": ports, "turn": self.turn, "members": members, "new": newcomers}
            self.hub.tell(newcomers, word)
        return self._take_turn(members, lambda: self._take_in(ports, members), site)

    def _take_in(self, ports: Sequence[str], members: list[int]) -> Any:
        """The root meets all newcomers first; the others wait, in a way that can be given up."""
        watch = self._watch(members)
        pairs = join.met(ports, watch) if self.hub is not None else [None] * len(ports)
        Communicator(self.comm.raw, watch).barrier()
        return join.taken_in(self.comm.raw, pairs, watch)

    def arrive(self) -> str:
        """Join as a newcomer; gives the place in the program at which the others are."""
        assert isinstance(self.station, MemberClient)
        word = self.station.order()
        self.turn, members, new = word["turn"], word["members"], word["new"]
        self.members = members[: -len(new)]
        place = new.index(self.station.identity)
        watch = self._watch(members)
        if not self._take_turn(members, lambda: join.joined(word["join"], place, watch), ""):
            raise MemberLeft(0)
        return self._site

    def shrink(self, size: int) -> bool:
        """Let the last members leave; False if one was lost meanwhile."""
        self.turn += 1
        members, old = self.members, self.size
        stay, leave = members[:size], members[size:]
        if self.hub is not None:
            for each in leave:
                self.hub.let_go(each)

        def share() -> tuple[Any, Blocks]:
            began = time.monotonic()
            blocks = self._moved(self.comm, old, size)
            self.parts = {"move": time.monotonic() - began}
            staying = self.station.identity in stay
            watch = self._watch(members)
            raw = join.parted(self.comm.raw, range(size), self.turn, watch) if staying else None
            return raw, blocks

        done, result = self._agreed(members, share)
        if done and result is not None:
            self._commit(result[0], result[1], stay)
        return done

    def regroup(self) -> None:
        """A communicator of those who are left."""
        while not self._regrouped():
            continue  # another one was lost meanwhile; the root is never lost, so this ends

    def _regrouped(self) -> bool:
        self.turn, members = self._survivors()
        ranks = [self.members.index(each) for each in members]
        raw, watch = self.comm.raw, self._watch(members)
        done, comm = self._agreed(members, lambda: join.parted(raw, ranks, self.turn, watch))
        if done:
            self._adopt(comm, members)
        return done

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members)

    def _survivors(self) -> tuple[int, list[int]]:
        if self.hub is None:
            assert isinstance(self.station, MemberClient)
            word = self.station.order()
            return word["regroup"], word["members"]
        members = [each for each in self.members if each not in self.hub.lost]
        turn = self.turn + 1
        self.hub.tell(members, {"regroup": turn, "members": members})
        return turn, members

    def _take_turn(self, members: list[int], connect: Callable[[], Any], site: str) -> bool:
        old = self.size

        def share() -> tuple[Any, Blocks]:
            began = time.monotonic()
            raw = connect()
            comm = Communicator(raw, self._watch(members))
            self._site = self._replicate(comm, old, site)
            connected = time.monotonic()
            blocks = self._moved(comm, old, len(members))
            self.parts = {"connect": connected - began, "move": time.monotonic() - connected}
            return raw, blocks

        done, result = self._agreed(members, share)
        if done and result is not None:
            self._commit(result[0], result[1], members)
        return done

    def _agreed(self, members: list[int], share: Callable[[], Any]) -> tuple[bool, Any]:
        """Do our share of a turn, and hear what became of it."""
        result = None
        try:
            result = share()
            self.station.report(self.turn, well=True)
        except NodesLost:
            self.station.report(self.turn, well=False)
        except BaseException:
            self.station.report(self.turn, well=False)
            if self.hub is not None:
                self.hub.decide(self.turn, members)
            raise
        if self.hub is not None:
            return self.hub.decide(self.turn, members), result
        return self.station.verdict(self.turn), result

    def _replicate(self, comm: Communicator, old: int, site: str) -> str:
        """Give newcomers the state, and what arrays there are."""
        shapes = {
            name: (each.shape, each.dtype.str, each.layout.block)
            for name, each in self.arrays.items()
        }
        state, shapes, site = comm.bcast((self.state, shapes, site))
        if comm.rank >= old:
            self.state = state
            self.arrays = {name: Distributed(*terms) for name, terms in shapes.items()}
        return str(site)

    def _moved(self, comm: Communicator, old: int, new: int) -> Blocks:
        return {name: each.moved(comm, old, new) for name, each in self.arrays.items()}

    def _commit(self, raw: Any, blocks: Blocks, members: list[int]) -> None:
        if self.station.identity not in members:
            self.station.leave()
            raise MemberLeft(0)
        before = self.comm.raw
        self._adopt(raw, members)
        for name, block in blocks.items():
            self.arrays[name].place(self.comm.rank, self.size, block)
        before.Free()

    def _adopt(self, raw: Any, members: list[int]) -> None:
        self.members = members
        self.comm = Communicator(raw, self._watch(members, turn=False))

    def _watch(self, members: list[int], *, turn: bool = True) -> Callable[[], None]:
        if not turn:
            return lambda: self.station.watch(members)
        number, last = self.turn, time.monotonic() + self._limit()

        def watch() -> None:
            self.station.watch(members, number)
            if self.hub is not None and time.monotonic() > last:
                raise NodesLost("the change of the job's size did not end within its limit")

        return watch

    def _limit(self) -> float:
        """Seconds that a change may take."""
        return TURN_LIMIT + sum(each.nbytes for each in self.arrays.values()) / SLOWEST
