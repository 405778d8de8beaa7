"""A simulated store, device and worker, which take virtual time.

The store holds the same rows in the same order as a file does, but in memory.
"""

from __future__ import annotations

import logging
import math
from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qtide.backends.devices.device import Occupation, WorkerLost, divided
from qtide.backends.payloads.payload import Encoded, decode, encode_answer
from qtide.core.processes import Header
from qtide.core.world.world import Future, Signal, World
from qtide.service.configuration import DeviceSetup
from qtide.service.store import (
    Action,
    Outcome,
    Result,
    SqliteDatabase,
    Store,
    StoreFailed,
    commit,
    in_memory,
    tell,
)

# A simulated failure is a number in a table, not a warning; a real service has handlers of its own.
logging.getLogger("qtide.service").addHandler(logging.NullHandler())

Write = tuple[Action[Any], Future[Any] | None]

COMMIT_S = 0.0004
"""Seconds per commit, as on a current disk."""


class SimulatedStore(Store):
    """A store in memory; as in a file, writes share commits in order of arrival."""

    def __init__(
        self,
        world: World,
        commit_s: float = COMMIT_S,
        connection: SqliteDatabase | None = None,
    ) -> None:
        self._world = world
        self._commit_s = commit_s
        self._connection = connection or in_memory()
        self.broken = False
        """Whether writes fail, and reads that a device waits for, as without a database."""
        self._pending: list[Write] = []
        self._writing: list[Write] = []
        self._committing = False
        self._cut_off = False

    def reopened(self) -> SimulatedStore:
        """The store after a power cut: committed rows remain, pending writes are lost."""
        self._cut_off = True
        _cancel(self._pending)
        return SimulatedStore(self._world, self._commit_s, self._connection)

    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is committed."""
        if self._cut_off:
            raise CancelledError
        answer: Future[Result] = self._world.future()
        self._put((action, answer))
        return await answer

    def post(self, action: Action[Any]) -> None:
        """Write with the next commit."""
        if not self._cut_off:
            self._put((action, None))

    def read(self, action: Action[Result]) -> Result:
        """Run a query."""
        return action(self._connection)

    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Run a query, which takes no virtual time."""
        if self.broken and urgent:
            raise StoreFailed("the store is away")
        return action(self._connection)

    def close(self) -> None:
        """Finish the writes requested so far, and keep the rows for the next service."""
        writes, self._pending = self._writing + self._pending, []
        self._writing = []
        if writes and not self._cut_off:
            tell((answer for _, answer in writes), self._outcomes(writes))

    def _put(self, write: Write) -> None:
        self._pending.append(write)
        if not self._committing:
            self._committing = True
            self._world.start(self._commit())

    async def _commit(self) -> None:
        """Commit pending writes; a power cut may come before a commit or its acknowledgement."""
        while self._pending and not self._cut_off:
            self._writing, self._pending = self._pending, []
            await self._world.sleep(self._commit_s / 2)
            if self._cut_off:
                _cancel(self._writing)
                return
            writes, self._writing = self._writing, []
            outcomes = self._outcomes(writes)
            await self._world.sleep(self._commit_s / 2)
            if self._cut_off:
                _cancel(writes)
            else:
                tell((answer for _, answer in writes), outcomes)
        self._committing = False

    def _outcomes(self, writes: list[Write]) -> list[Outcome]:
        if self.broken:
            return [(None, StoreFailed("the store is away")) for _ in writes]
        return commit(self._connection, [action for action, _ in writes])


def _cancel(writes: list[Write]) -> None:
    for _, answer in writes:
        if answer is not None:
            answer.cancel()


DIVISIBLE = 3
"""Qubits of a simulated device that may be divided among tasks at the same time; each takes one."""
START_S = 1.0
"""Seconds that a worker takes to get ready."""


@dataclass(frozen=True)
class Fate:
    """What happens to a task on the device, and after which share of its time."""

    kind: Literal["answer", "error", "fault", "death", "hang"] = "answer"
    share: float = 1.0


@dataclass
class SimulatedOccupation:
    """The period that a task was on the device."""

    ticket: str
    began: float
    alone: float
    """Seconds that the task takes alone, by which it divides the time with others."""
    ended: float | None = None
    said: str | None = None
    """The kind of the worker's last message about it; None if the worker died or was killed."""

    @property
    def seconds(self) -> float:
        """Seconds it was on the device; 0 while it still is."""
        return 0.0 if self.ended is None else self.ended - self.began


MOST_NOTED = 64
"""Occupations that a device keeps for a service that may not have recorded them."""


class SimulatedDevice:
    """A device that starts simulated workers, and records which tasks occupied it."""

    def __init__(
        self,
        world: World,
        fate: Callable[[Header], Fate] = lambda _: Fate(),
        start_s: float = START_S,
    ) -> None:
        self.world = world
        self.fate = fate
        self.occupations: list[SimulatedOccupation] = []
        self.worker: SimulatedWorker | None = None
        """The last worker that was started."""
        self.broken = False
        """Whether workers fail to start."""
        self._start_s = start_s
        self._name = ""
        self.noted: deque[Occupation] = deque(maxlen=MOST_NOTED)
        """The last occupations, for a service that may not have recorded them."""

    async def left_behind(self) -> dict[str, list[Occupation]]:
        """What the worker of an earlier service noted."""
        return {self._name: list(self.noted)} if self.noted else {}

    async def start(
        self, name: str, setup: DeviceSetup, *, checks: bool = False
    ) -> SimulatedWorker:
        """Start a worker, and return it once it is ready."""
        self._name = name
        await self.world.sleep(self._start_s)
        if self.broken:
            raise WorkerLost(f"{name} is broken")
        self.worker = self.new_worker()
        return self.worker

    def new_worker(self) -> SimulatedWorker:
        """Make the worker to start."""
        return SimulatedWorker(self)

    def occupy(self, ticket: str, alone: float) -> SimulatedOccupation:
        """Record that a task starts, which takes `alone` seconds by itself."""
        self.occupations.append(SimulatedOccupation(ticket, self.world.now(), alone))
        return self.occupations[-1]


class SimulatedDevices:
    """Several simulated devices, by name."""

    def __init__(self, devices: Mapping[str, SimulatedDevice]) -> None:
        self._devices = devices

    async def start(
        self, name: str, setup: DeviceSetup, *, checks: bool = False
    ) -> SimulatedWorker:
        """Start a worker of the device of that name."""
        return await self._devices[name].start(name, setup, checks=checks)

    async def left_behind(self) -> dict[str, list[Occupation]]:
        """What the workers of an earlier service noted."""
        return {name: list(each.noted) for name, each in self._devices.items() if each.noted}


class SimulatedWorker:
    """A simulated worker, which runs the tasks it is sent one by one."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.properties: dict[str, Any] = {"formats": ["burst"], "divisible": DIVISIBLE}
        self._device = device
        self._world = device.world
        self._orders: deque[tuple[Header, bytes]] = deque()
        self._outgoing: deque[tuple[Header, bytes]] = deque()
        self._cancelled: set[str] = set()
        self._paused: dict[str, float] = {}
        self._changed = Signal(device.world)
        self._spoke = Signal(device.world)
        self._occupied: list[SimulatedOccupation] = []
        """Those of the tasks on the device, which divide the time by their parts."""
        self._dead = False
        device.world.start(self._run())

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send it a message."""
        if "cancel" in header:
            self._cancelled.add(header["cancel"])
        elif "pause" in header:
            self._paused[header["pause"]] = self._world.now()
        else:
            self._orders.append((header, body))
        self._changed.set()

    async def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Yield its messages, including those it sent before it ended."""
        while True:
            while self._outgoing:
                yield self._outgoing.popleft()
            if self._dead:
                return
            self._spoke.clear()
            await self._spoke.wait()

    async def end(self) -> None:
        """Kill it, whatever it is doing."""
        self.die()

    async def occupations(self) -> list[Occupation]:
        """What occupied its device."""
        return list(self._device.noted)

    def die(self) -> None:
        """End it, so that it sends no more messages."""
        self._dead = True
        self._spoke.set()
        self._changed.set()
        self._leave([])

    def say(self, header: Header, body: bytes = b"") -> None:
        """Send a message to the reader of `messages`."""
        if not self._dead:
            self._outgoing.append((header, body))
            self._spoke.set()

    async def perform(self, header: Header, body: bytes) -> None:
        """Run one task."""
        await self.perform_together([(header, body)])

    async def perform_together(self, orders: list[tuple[Header, bytes]]) -> None:
        """Run tasks at the same time, from their start to their answers."""
        runs: list[tuple[Header, bytes, Fate]] = []
        for header, body in orders:
            ticket = header["ticket"]
            if "suspect" in header:
                self.say({"opened": ticket})
            if ticket in self._cancelled:
                self.say({"ticket": ticket, "cancelled": True, "seconds": 0.0})
            else:
                runs.append((header, body, self._device.fate(header)))
        if not runs:
            return
        for header, _, _ in runs:
            self._occupied.append(self._device.occupy(header["ticket"], header["seconds"]))
            self.say({"began": header["ticket"], "at": self._world.now()})
        left = await self._wait_out([(header, fate) for header, _, fate in runs])
        if any(fate.kind == "death" for _, _, fate in runs):
            self.die()
        if self._dead:
            return
        replies = [self._answer(header["ticket"], fate, body) for header, body, fate in runs]
        if left > 0 and "cancelled" not in replies[0][0]:
            replies = [({"share": 1 - left / runs[0][0]["whole"], "progress": 0}, b"")]
        occupied = self._leave([next(iter(said)) for said, _ in replies])
        for each, (said, answer) in zip(occupied, replies, strict=True):
            times = {"began": each.began, "seconds": each.seconds}
            self.say({"ticket": each.ticket} | times | said, answer)

    def _leave(self, said: list[str]) -> list[SimulatedOccupation]:
        """Note that the tasks on the device, if any, have left it; `said` is empty if it died."""
        left, self._occupied = self._occupied, []
        if left:
            whole = sum(each.alone for each in left)
            parts = [each.alone / whole if whole else 1 / len(left) for each in left]
            began = left[0].began
            periods = divided(began, self._world.now() - began, parts)
            words: list[str | None] = [*said] or [None] * len(left)
            for each, (since, seconds), word in zip(left, periods, words, strict=True):
                each.began, each.ended, each.said = since, since + seconds, word
                self._device.noted.append(Occupation(each.ticket, since, seconds, word is not None))
        return left

    async def _run(self) -> None:
        while not self._dead:
            if self._orders:
                header, body = self._orders.popleft()
                if others := header.get("beside", 0):
                    company = [self._orders.popleft() for _ in range(others)]
                    await self.perform_together([(header, body), *company])
                else:
                    await self.perform(header, body)
            else:
                self._changed.clear()
                await self._changed.wait()

    async def _wait_out(self, runs: list[tuple[Header, Fate]]) -> float:
        """Wait until the longest task's share of its time is over; return what is left of one that
        gives way.

        A hanging task can neither be cancelled nor give way.
        """
        began = self._world.now()
        end: float = began + max(header["seconds"] * fate.share for header, fate in runs)
        hangs = any(fate.kind == "hang" for _, fate in runs)
        header, tickets = runs[0][0], [header["ticket"] for header, _ in runs]
        while not self._dead:
            left = None if hangs else end - self._world.now()
            if left is not None and (left <= 0 or self._cancelled.issuperset(tickets)):
                break
            (ticket, *others) = tickets
            if left is not None and not others and ticket in self._paused:
                chunk: float = header["chunk"]
                until = began + chunk * math.ceil((self._paused[ticket] - began) / chunk)
                if self._world.now() >= until:
                    return left
                left = min(left, until - self._world.now())
            self._changed.clear()
            await self._changed.wait(left)
        return 0.0

    def _answer(self, ticket: str, fate: Fate, body: bytes) -> tuple[Header, bytes]:
        if ticket in self._cancelled:
            return {"cancelled": True}, b""
        if fate.kind == "fault":
            return {"fault": "the device was down"}, b""
        if fate.kind == "error":
            return {"error": "the device could not do it"}, b""
        packed = self.answer_to(body)
        return {"format": packed.format}, packed.data

    def answer_to(self, body: bytes) -> Encoded:
        """The answer to a payload."""
        return encode_answer(decode(Encoded("burst", body), trusted=True).answer)
