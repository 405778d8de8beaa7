"""Workers of devices, and validators, which check payloads in expendable ones before acceptance.

Each is another worker of the same device that never runs a task. Users take turns, no user can
occupy all validators, and each has a budget of seconds per minute. If the sender hangs up, its
check does not begin, or ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from qtide.backends.devices.device import Occupation, OccupationLog, Process, WorkerLost
from qtide.backends.payloads.payload import Encoded, PayloadRefused, is_duration, stated_seconds
from qtide.core.processes import Header
from qtide.core.world.world import Future, Signal, World
from qtide.service.configuration import DeviceSetup
from qtide.service.limits import FairSemaphore, LeakyBucket, Limits


class WorkerLink(Protocol):
    """A ready worker, which runs the tasks it is sent one by one and reports on them."""

    properties: dict[str, Any]
    """What its device accepts: formats, limits and the like."""

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send it a message; if it has gone, the end of `messages` tells."""

    def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Yield its messages until it ends."""

    async def end(self) -> None:
        """Kill it, whatever it is doing."""

    async def occupations(self) -> list[Occupation]:
        """What occupied the device, once the worker has ended, whether it was reported or not."""


class Workers(Protocol):
    """Where workers come from."""

    async def start(self, name: str, setup: DeviceSetup, *, checks: bool = False) -> WorkerLink:
        """Start a worker of the named device, or raise `WorkerLost`; `checks`: it runs nothing."""

    async def left_behind(self) -> dict[str, list[Occupation]]:
        """By device, what occupied it under an earlier service, whether that is known or not."""


class WorkerProcesses:
    """Workers as processes on this host, with their files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._logs, self._occupied = folder / "log", folder / "occupied"

    async def start(self, name: str, setup: DeviceSetup, *, checks: bool = False) -> WorkerLink:
        """Start a worker; what its device prints goes to a log."""
        occupied = None if checks else self._occupied / name
        with (self._logs / f"{name}.log").open("ab") as log:
            return await Process.start(setup.kind, setup.options, setup.python, log, occupied)

    async def left_behind(self) -> dict[str, list[Occupation]]:
        """What the workers of an earlier service noted."""
        for folder in (self._logs, self._occupied):
            folder.mkdir(parents=True, exist_ok=True)
        return {file.name: await OccupationLog.settled(file) for file in self._occupied.iterdir()}


LIMIT = 5.0
"""Seconds that a check may take."""
START_LIMIT = 60.0
"""Seconds to wait for a worker to start."""
ATTEMPTS = 3
"""Attempts to check a payload if its validator dies, since something else may have killed it."""
SMALL = 16 * 1024
"""Maximum bytes of a duration payload to read inline, without a process."""
TIME = "seconds of checking payloads within a minute"

HungUp = Callable[[], Future[None]]
"""Returns a future that resolves when the sender of a payload has gone."""


class HungUpEarly(PayloadRefused):
    """The sender has gone, so nobody waits for the check."""


@dataclass(frozen=True)
class Checked:
    """A payload that the device accepts, in the form to store, and its number of circuits."""

    encoded: Encoded
    size: int = 1
    qubits: int = 0
    seconds: float | None = None
    """Its duration, if it states one."""
    cost: tuple[float, float] | None = None
    """The device's estimate: fixed seconds, and seconds per shot."""
    fidelity: float | None = None
    """Expected fidelity of its circuits, if the device can tell."""
    width: int | None = None
    """The qubits that it takes beside others' circuits; None if it has to have the device alone."""

    def check_fidelity(self, floor: float | None, device: str) -> None:
        """Refuse it if it should not reach a fidelity; one that cannot be told counts as 1."""
        if floor is not None and self.fidelity is not None and self.fidelity < floor:
            raise PayloadRefused(
                f"{device} should not reach a fidelity of {floor:g}, but of {self.fidelity:.3g}: "
                "ask for less, or for a shorter circuit"
            )


class Validator:
    """The validators of a device, started on demand."""

    def __init__(
        self,
        name: str,
        setup: DeviceSetup,
        world: World,
        workers: Workers,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self._name = name
        self._setup = setup
        self._world = world
        self._workers = workers
        self._idle: list[WorkerLink] = []
        each = max(1, limits.validators - 1)
        self._turns = FairSemaphore(world, "checks", each, limits.validators)
        self._time = LeakyBucket(world, 1, 1)
        self.adopt(limits)
        self._most = limits.validators
        self._alive = 0
        self._closed = False
        self._started = Signal(world)
        self._numbers = count()

    def adopt(self, limits: Limits) -> None:
        """Change the time budget; the number of validators stays."""
        self._time.adopt(limits.validation_seconds / 60.0, limits.validation_seconds)

    async def check(
        self, encoded: Encoded, user: str = "", hung_up: HungUp | None = None
    ) -> Checked:
        """Return a payload in the form to store, or refuse it with a reason."""
        if len(encoded.data) <= SMALL and is_duration(encoded.format):
            return Checked(encoded, seconds=stated_seconds(encoded))
        self._time.check(f"user {user}", TIME)
        work = self._in_turn(encoded, f"user {user}")
        return await (work if hung_up is None else self._until(hung_up(), work))

    async def warm_up(self) -> None:
        """Start one before the first payload arrives."""
        await self._start_spare()

    async def close(self) -> None:
        """End the workers."""
        self._closed = True
        while self._idle:
            await self._idle.pop().end()

    async def _until(self, gone: Future[None], work: Any) -> Checked:
        """Await the work, and cancel it if the sender hangs up."""
        task: Future[Checked] = self._world.start(work)
        gone.add_done_callback(lambda _: task.cancel())
        try:
            return await task
        except BaseException as error:
            if gone.done() and task.cancelled():
                raise HungUpEarly("the sender hung up") from error
            task.cancel()
            raise

    async def _in_turn(self, encoded: Encoded, who: str) -> Checked:
        async with self._turns.turn(who):
            self._time.check(who, TIME)  # earlier checks may have used up the budget
            for _ in range(ATTEMPTS):
                worker = await self._free_worker()
                with self._charged(who) as price:
                    checked = await self._by(worker, encoded, price)
                if checked is not None:
                    return checked
        raise WorkerLost(
            f"the process that checks payloads for {self._name} ended {ATTEMPTS} times; "
            "send the payload again"
        )

    @contextmanager
    def _charged(self, who: str) -> Iterator[list[float]]:
        """Charge the time of a check; one that costs a process is charged at least the limit."""
        began, price = self._world.now(), [LIMIT]
        try:
            yield price
        finally:
            self._time.charge(who, max(price[0], self._world.now() - began))

    async def _by(self, worker: WorkerLink, encoded: Encoded, price: list[float]) -> Checked | None:
        """A worker's verdict on a payload; None if it died."""
        try:
            header, body = await self._world.timeout(LIMIT, self._asked(worker, encoded))
        except TimeoutError:
            await self._end(worker)
            raise PayloadRefused(f"the payload took more than {LIMIT:g} s to check") from None
        except EOFError:
            await self._end(worker)
            return None
        except BaseException:
            await self._end(worker)
            raise
        price[0] = 0.0
        self._idle.append(worker)
        return _judged(header, body)

    async def _free_worker(self) -> WorkerLink:
        """Take an idle worker, and start a spare one for the next user."""
        self._drop_dead()
        while not self._idle:
            if self._closed:
                raise WorkerLost(f"{self._name} is being replaced or stopped; send it again")
            if self._alive >= self._most:  # one is being started: wait for it
                self._started.clear()
                await self._started.wait(START_LIMIT)
            else:
                await self._start_one()
        worker = self._idle.pop()
        if not self._idle and self._alive < self._most:
            self._world.start(self._start_spare())
        return worker

    def _drop_dead(self) -> None:
        """Drop idle workers that something else killed, so that no user pays for that."""
        alive = [each for each in self._idle if getattr(each, "alive", True)]
        self._alive -= len(self._idle) - len(alive)
        self._idle = alive

    async def _start_spare(self) -> None:
        if self._alive < self._most and not self._closed:
            with suppress(WorkerLost):
                await self._start_one()

    async def _start_one(self) -> None:
        self._alive += 1
        try:
            worker = await self._workers.start(self._name, self._setup, checks=True)
        except BaseException:
            self._alive -= 1
            raise
        finally:
            self._started.set()
        self._idle.append(worker)
        if self._closed:
            await self.close()

    async def _end(self, worker: WorkerLink) -> None:
        """End a worker that may be stuck, and replace it while its user waits."""
        self._alive -= 1
        await worker.end()
        await self._start_spare()

    async def _asked(self, worker: WorkerLink, encoded: Encoded) -> tuple[dict[str, Any], bytes]:
        ticket = f"check {next(self._numbers)}"
        worker.send({"ticket": ticket, "check": True, "format": encoded.format}, encoded.data)
        async for header, body in worker.messages():
            if header["ticket"] == ticket:  # any other answer is out of date
                return header, body
        raise EOFError


def _judged(header: dict[str, Any], body: bytes) -> Checked:
    if "away" in header:
        raise WorkerLost(f"the payload cannot be checked now: {header['away']}")
    if "refused" in header:
        raise PayloadRefused(header["refused"])
    encoded = Encoded(header["format"], body)
    cost = header.get("cost")
    return Checked(
        encoded,
        header["size"],
        header.get("qubits", 0),
        header.get("seconds"),
        None if cost is None else (cost[0], cost[1]),
        header.get("fidelity"),
        header.get("width"),
    )
