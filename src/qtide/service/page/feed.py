"""The stream of changes that open pages follow, as server-sent events.

Each event has a number, and each life of the service an epoch. A page that comes back names the
last event it has seen: it gets the later ones, or everything anew if they are not kept any more. A
page that reads slowly gets fewer and larger events; nothing is kept for it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field
from typing import Any

from qtide.service.connection import Connection
from qtide.service.device.served_device import ServedDevice
from qtide.service.service import Service
from qtide.service.task import Caller, ServiceTask, sees

PACE = 0.2
"""Seconds between two events."""
KEPT = 150
"""Events kept for pages that come back: half a minute of changes without a pause."""
LINGERING = 30.0
"""Seconds to collect events after the last page has left, so that it can come back."""
BEAT = 10.0
"""Seconds after which a page gets a sign of life."""
MOST_ROWS = 300
"""Tasks in one event; the pages ask for the rest if they show it."""
MOST_SHOWN = 60
"""Tasks that one page gets in one event."""
SLOW = 1.0
"""Seconds between two sums over a long queue."""


@dataclass
class FeedEvent:
    """The devices and tasks that changed in one interval."""

    number: int
    now: float
    devices: list[tuple[ServedDevice, str]]
    tasks: list[tuple[Caller, str]]
    more: bool
    """Whether more tasks changed than are named."""
    _written: dict[Hashable, bytes] = field(default_factory=dict)

    def written(self, caller: Caller, epoch: str) -> bytes:
        """What a caller may see of it; callers with the same rights share the bytes."""
        key = None if caller.operator else (caller.user, caller.account)
        if key not in self._written:
            mine = (row for who, row in self.tasks if caller.operator or who.user == caller.user)
            rows = [row for _, row in zip(range(MOST_SHOWN + 1), mine, strict=False)]
            more = self.more or len(rows) > MOST_SHOWN
            devices = (text for device, text in self.devices if device.admits(caller))
            self._written[key] = (
                f"id: {epoch}-{self.number}\ndata: "
                f'{{"now": {self.now:.3f}, "devices": [{", ".join(devices)}], '
                f'"tasks": [{", ".join(rows[:MOST_SHOWN])}], "more": {json.dumps(more)}}}\n\n'
            ).encode()
        return self._written[key]


def task_row(task: ServiceTask) -> dict[str, Any]:
    """A task as the page lists it."""
    return {
        "id": task.id,
        "name": task.name,
        "state": str(task.state),
        "device": task.device,
        "user": task.caller.user,
        "account": task.caller.account,
        "job": task.caller.job,
        "submitted": task.submitted,
        "started": task.started,
        "ended": task.ended,
        "max_wait": task.max_wait,
        "attempts": task.attempts,
        "expected_seconds": task.seconds,
        "qpu_seconds": task.used,
        "error": task.error,
    }


class Feed:
    """Collects changes while pages are open, and sends them to each."""

    def __init__(self, service: Service) -> None:
        self.epoch = secrets.token_hex(4)
        self._service = service
        self._number = 0
        self._events: deque[FeedEvent] = deque(maxlen=KEPT)
        self._changed: dict[str, ServiceTask] = {}
        self._shown: dict[str, tuple[Any, ...]] = {}
        self._waits: dict[str, tuple[float, float | None]] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._pages = 0
        self._left = 0.0
        self._collecting: asyncio.Task[None] | None = None
        self._stopping = False
        service.on_stopping.append(self.stop)

    def stop(self) -> None:
        """End all streams, because the service stops."""
        self._stopping = True
        self._wake()
        if self._collecting is not None:
            self._collecting.cancel()

    async def stream(
        self, caller: Caller, after: str, connection: Connection | None
    ) -> AsyncIterator[bytes]:
        """Yield the events after one, or first everything, until the page or the service ends.

        Like a request that waits for a task, a stream gives way if its user has too many.
        """
        self._pages += 1
        self._collect()
        try:
            yield b"retry: 1000\n\n"
            seen = self._number_of(after)
            while not self._stopping:
                oldest = self._events[0].number if self._events else self._number + 1
                if seen is None or not oldest - 1 <= seen <= self._number:
                    seen = self._number
                    yield self._whole(caller)
                for event in list(self._events):
                    if event.number > seen:
                        seen = event.number
                        yield event.written(caller, self.epoch)
                if seen == self._number and not await self._next(connection):
                    return
                if seen == self._number:
                    yield f'event: beat\ndata: {{"now": {self._service.now():.3f}}}\n\n'.encode()
        finally:
            self._pages -= 1
            self._left = asyncio.get_running_loop().time()

    async def _next(self, connection: Connection | None) -> bool:
        """Wait for the next event, at most `BEAT` seconds; False if the stream has to give way."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        if connection is not None:
            connection.hold(waiter)
        try:
            await asyncio.wait([waiter], timeout=BEAT)
            return not waiter.cancelled()
        finally:
            if connection is not None:
                connection.hold(None)
            self._waiting.discard(waiter)

    def _number_of(self, after: str) -> int | None:
        """The number of an event of this epoch."""
        epoch, _, number = after.partition("-")
        fits = epoch == self.epoch and number.isascii() and number.isdecimal() and len(number) < 16
        return int(number) if fits else None

    def _whole(self, caller: Caller) -> bytes:
        """Everything that a new page shows: the devices, and the tasks that run."""
        devices = [each for each in self._service.devices.values() if each.admits(caller)]
        running = [
            task_row(task) for device in devices for task in device.on_device if sees(caller, task)
        ]
        words = {
            "epoch": self.epoch,
            "now": self._service.now(),
            "devices": [self.described(device) for device in devices],
            "tasks": running,
        }
        head = f"event: whole\nid: {self.epoch}-{self._number}\ndata: "
        return f"{head}{json.dumps(words)}\n\n".encode()

    def described(self, device: ServedDevice) -> dict[str, Any]:
        """A device as the page shows it."""
        now = self._service.now()
        state = device.state
        noted = self._service.metrics.activity.get(device.name)
        since = noted.since if noted is not None and noted.state == state else now
        return {
            "name": device.name,
            "kind": device.setup.kind,
            "state": state,
            "since": since,
            "reason": device.reason,
            "drained": device.drained,
            "closed": device.why_waiting() == "maintenance",
            "maintenance": [each.model_dump() for each in device.maintenance],
            "policy": device.setup.policy,
            "slots": device.setup.slots,
            "waiting": device.waiting,
            "running": device.running,
            "expected_wait": self._expected_wait(device, now),
            "calibration": device.calibration,
        }

    def _expected_wait(self, device: ServedDevice, now: float) -> float | None:
        """What a new task would wait; for a long queue, computed at most once a second."""
        at, known = self._waits.get(device.name, (0.0, None))
        if device.waiting > MOST_ROWS and now - at < SLOW:
            return known
        found = device.expected_wait
        self._waits[device.name] = now, found
        return found

    def _collect(self) -> None:
        """Collect changes from now on; drop earlier events, since those after them are missing."""
        if self._collecting is not None and not self._collecting.done():
            return
        self._events.clear()
        self._changed.clear()
        self._number += 1
        self._service.metrics.on_change = self._note
        self._collecting = asyncio.get_running_loop().create_task(self._keep_collecting())

    def _note(self, task: ServiceTask) -> None:
        self._changed[task.id] = task

    async def _keep_collecting(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pages or loop.time() - self._left < LINGERING:
                await asyncio.sleep(PACE)
                self._flush()
        finally:
            self._service.metrics.on_change = None
            self._changed.clear()

    def _flush(self) -> None:
        """Make an event of everything that changed, if anything did."""
        changed, self._changed = self._changed, {}
        devices = []
        for device in self._service.devices.values():
            planned = tuple(each.number for each in device.maintenance)
            state = (
                *(device.state, device.reason, device.drained, planned),
                *(device.waiting, device.running, device.setup),
            )
            if self._shown.get(device.name) != state:
                self._shown[device.name] = state
                devices.append((device, json.dumps(self.described(device))))
        if self._shown.keys() - self._service.devices.keys():  # a device was removed
            self._shown = {n: s for n, s in self._shown.items() if n in self._service.devices}
            self._events.clear()
            self._number += 2  # no page has seen the event before, so each gets everything anew
            self._wake()
            return
        if not changed and not devices:
            return
        named = list(changed.values())[:MOST_ROWS]
        rows = [(task.caller, json.dumps(task_row(task))) for task in named]
        self._number += 1
        more = len(changed) > len(named)
        self._events.append(FeedEvent(self._number, self._service.now(), devices, rows, more))
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
