"""The worker: the process a device runs in, so that no other process needs its packages.

It reads tasks from stdin and writes answers to stdout. It unpacks the next task while the device is
busy, and sends answers from a separate thread, so the device waits for neither between tasks.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from qtide.backends.devices.device import (
    Device,
    DeviceAway,
    OccupationLog,
    divided,
    make,
    needed_packages,
)
from qtide.backends.payloads.guard import MOST_ANSWER
from qtide.backends.payloads.payload import (
    Encoded,
    PayloadRefused,
    circuits_in,
    decode,
    decode_answer,
    encode,
    encode_answer,
    is_duration,
    qubits_in,
    stated_seconds,
)
from qtide.backends.payloads.shots import Shots
from qtide.core.errors import PhaseError, QtideError
from qtide.core.files import keep_bytecode
from qtide.core.processes import Header, die_with_parent, frame, read, signal_at_parents_death

Reply = tuple[Header, bytes]

LONGEST_WAIT = 60.0
"""The longest single wait in seconds: a profile's time may exceed what a wait can take."""
TOO_MANY = f"more than the {MOST_ANSWER} allowed; ask for fewer shots or circuits"


@dataclass(eq=False)
class Order:
    """A task to run or a payload to check; `payload` is set once unpacked."""

    header: Header
    body: bytes
    payload: Any = None
    refusal: str | None = None
    cancelled: bool = False
    paused: float | None = None
    """When it was asked to give way after the current chunk, on the monotonic clock."""
    earlier: Encoded | None = None
    """Its answer so far, if it gave way between two pieces; it is behind the payload."""
    answer: Any = None

    def __post_init__(self) -> None:
        if "earlier" in self.header:
            name, size = self.header["earlier"]
            self.earlier = Encoded(name, self.body[-size:])
            self.body = self.body[:-size]

    @property
    def ticket(self) -> str:
        """The identifier that the answer carries."""
        ticket: str = self.header["ticket"]
        return ticket

    def unpack(self) -> None:
        """Decode the payload, or record why it is refused."""
        try:
            # a validator packed the payloads to run; those to check are untrusted
            encoded = Encoded(self.header["format"], self.body)
            self.payload = decode(encoded, trusted="check" not in self.header)
        except PayloadRefused as error:
            self.refusal = str(error)
        except Exception as error:  # a payload must not end its worker
            self.refusal = f"the payload cannot be read: {type(error).__name__}"


class Worker:
    """Executes the orders for one device."""

    def __init__(
        self, device: Device, answers: BinaryIO, occupied: OccupationLog | None = None
    ) -> None:
        self._device = device
        self._answers = answers
        self._occupied = occupied
        self._outgoing: SimpleQueue[list[Reply]] = SimpleQueue()
        self._unsent: list[Reply] = []
        """Replies to send once the device has begun its next order or has none."""
        self._orders: deque[Order] = deque()
        self._changed = threading.Condition()
        self._current: list[Order] = []
        """The orders on the device, which run at the same time."""

    def serve(self, orders: BinaryIO) -> None:
        """Serve orders until the other end is gone."""
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()
        threading.Thread(target=self._send, daemon=True).start()
        self._outgoing.put([({"ready": self._device.properties()}, b"")])
        while True:
            self._perform(self._next())

    def _listen(self, orders: BinaryIO) -> None:
        while (message := read(orders)) is not None:
            header, body = message
            if "cancel" in header or "pause" in header:
                self._stop(header)
                continue
            order = Order(header, body)
            if "suspect" in header:
                self._outgoing.put([({"opened": order.ticket}, b"")])
            order.unpack()
            with self._changed:
                self._orders.append(order)
                self._changed.notify_all()
        os._exit(0)

    def _send(self) -> None:
        while True:
            replies = self._outgoing.get()
            self._answers.write(b"".join(frame(header, body) for header, body in replies))

    def _flush(self) -> None:
        if self._unsent:
            self._outgoing.put(self._unsent)
            self._unsent = []

    def _stop(self, header: Header) -> None:
        """Cancel an order, or let it give way after its chunk."""
        with self._changed:
            for order in (*self._orders, *self._current):
                if order.ticket == header.get("cancel"):
                    order.cancelled = True
                elif order.ticket == header.get("pause"):
                    order.paused = time.monotonic()
            self._changed.notify_all()

    def _next(self) -> list[Order]:
        """Wait for the next order, and for those that run beside it."""
        if not self._orders:
            self._flush()
        with self._changed:
            self._changed.wait_for(lambda: self._orders)
            size = 1 + self._orders[0].header.get("beside", 0)
            self._changed.wait_for(lambda: len(self._orders) >= size)
            self._current = [self._orders.popleft() for _ in range(size)]
            return self._current

    def _perform(self, orders: list[Order]) -> None:
        """Check a payload, or run some tasks at the same time."""
        runs: list[Order] = []
        for order in orders:
            words: Header = {"ticket": order.ticket, "seconds": 0.0}
            if order.refusal is not None:
                self._unsent.append((words | {"refused": order.refusal}, b""))
            elif order.cancelled:
                self._unsent.append((words | {"cancelled": True}, b""))
            elif "check" in order.header:
                self._unsent.append(self._check(order))
            else:
                runs.append(order)
        if runs:
            replies = self._run(runs)  # it sends what is unsent, so it has to come first
            self._unsent += replies

    def _check(self, order: Order) -> Reply:
        """Check the payload; if valid, return it in the format that loads fastest."""
        try:
            self._device.check(order.payload)
            packed = encode(order.payload)
            seconds = stated_seconds(packed)
            known = not is_duration(packed.format)
            cost = self._device.cost(order.payload) if known else None
            fidelity = self._device.fidelity(order.payload) if known else None
            width = self._device.width(order.payload)
        except DeviceAway as error:
            return {"ticket": order.ticket, "away": str(error)}, b""
        except (QtideError, PhaseError) as error:
            return {"ticket": order.ticket, "refused": str(error)}, b""
        except Exception as error:  # a payload must not end its worker
            reason = f"the payload cannot be checked: {type(error).__name__}: {error}"
            return {"ticket": order.ticket, "refused": reason}, b""
        found = {
            "size": circuits_in(order.payload),
            "qubits": qubits_in(order.payload),
            "seconds": seconds,
            "fidelity": fidelity,
            "width": width,
            "cost": None if cost is None else [cost.fixed, cost.shot],
        }
        return {"ticket": order.ticket, "format": packed.format} | found, packed.data

    def _run(self, orders: list[Order]) -> list[Reply]:
        """Run tasks at the same time; return their answers once the longest one's time is over.

        They divide that time in proportion to what each takes alone.
        """
        began, clock = time.time(), time.monotonic()
        if clock > orders[0].header.get("before", clock):
            os._exit(1)  # another service may have taken over while this one was suspended
        parts = _parts(orders)
        shared = "+".join(f"{o.ticket}*{p!r}" for o, p in zip(orders, parts, strict=True))
        self._note("began", shared if orders[1:] else orders[0].ticket, began, clock)
        self._unsent += [({"began": order.ticket, "at": began}, b"") for order in orders]
        self._flush()
        replies = self._solve_all(orders)
        if any("format" in header for header, _ in replies):
            left = self._let_pass(orders, clock)
            if left > 0:
                replies = [_so_far(orders[0], left)]
        end = time.monotonic()
        self._note("ended", end)
        found: list[Reply] = []
        periods = divided(began, end - clock, parts)
        for order, (header, body), (since, seconds) in zip(orders, replies, periods, strict=True):
            said = ({"cancelled": True}, b"") if order.cancelled else (header, body)
            words: Header = {"ticket": order.ticket, "began": since, "seconds": seconds}
            found.append((words | said[0], said[1]))
        return found

    def _note(self, *words: str | float) -> None:
        if self._occupied is not None:
            self._occupied.note(*words)

    def _let_pass(self, orders: list[Order], began: float) -> float:
        """Wait for the profile's time, or until the orders end early; return the seconds left.

        Only an order that has the device alone gives way.
        """
        end: float = began + max(order.header["seconds"] for order in orders)
        chunk: float = orders[0].header.get("chunk", 0.0)
        with self._changed:
            while (rest := end - (now := time.monotonic())) > 0:
                if all(order.cancelled for order in orders):
                    break
                paused = None if orders[1:] else orders[0].paused
                if paused is not None:
                    chunks = math.ceil((paused - began) / chunk)
                    if now >= began + chunks * chunk:
                        return rest
                    rest = min(rest, began + chunks * chunk - now)
                self._changed.wait(min(rest, LONGEST_WAIT))
        return 0.0

    def _solve_all(self, orders: list[Order]) -> list[Reply]:
        """Compute the answers; several orders get a part of the device each."""
        if not orders[1:]:
            return [self._solve(orders[0], self._device)]
        try:
            devices = self._device.beside([order.payload for order in orders])
        except Exception as error:  # like one of `_solve`
            return [({"error": f"the device failed: {type(error).__name__}: {error}"}, b"")] * len(
                orders
            )
        return [self._solve(*pair) for pair in zip(orders, devices, strict=True)]

    def _solve(self, order: Order, device: Device) -> Reply:
        try:
            progress = self._work(order, device)
            packed = encode_answer(order.answer)
            if len(packed.data) > MOST_ANSWER:
                return {"error": f"its answer has {len(packed.data)} bytes, {TOO_MANY}"}, b""
        except DeviceAway as error:
            return {"fault": str(error)}, b""
        except (QtideError, PhaseError) as error:
            return {"error": str(error)}, b""
        except Exception as error:
            return {"error": f"the device failed: {type(error).__name__}: {error}"}, b""
        known = {} if device.calibration is None else {"calibration": device.calibration}
        return {"format": packed.format} | progress | known, packed.data

    def _work(self, order: Order, device: Device) -> Header:
        """Compute the answer; return how far it got if it gave way between two pieces."""
        head = order.header
        terms = order.payload, head["shots"], int(head["seed"])
        if "chunk" not in head or head["seconds"]:
            order.answer = device.solve(*terms)
            return {}
        done = 0
        if order.earlier is not None:
            done, order.answer = head["progress"], decode_answer(order.earlier)
        for piece in device.pieces(*terms, head["chunk"], done):
            joined = device.join(order.answer, piece.answer) if done else piece.answer
            order.answer, done = joined, piece.done
            if order.cancelled or (order.paused is not None and piece.share < 1):
                return {"share": piece.share, "progress": done}
        return {}


def _parts(orders: list[Order]) -> list[float]:
    """The part of the time of each order, in proportion to what it takes alone."""
    alone = [order.header["seconds"] for order in orders]
    whole = sum(alone)
    return [each / whole if whole else 1 / len(alone) for each in alone]


def _so_far(order: Order, left: float) -> Reply:
    """The answer to the shots that the profile's time has sufficed for; the rest is repeated."""
    share = 1 - left / order.header["whole"]
    words = {"share": share, "progress": 0}
    if not isinstance(order.answer, list) or not all(isinstance(a, Shots) for a in order.answer):
        return words, b""
    packed = encode_answer([each.first(share) for each in order.answer])
    return words | {"format": packed.format}, packed.data


BEAT = 1.0
"""Seconds between two signs of life of a witness."""


def start_witness(occupied: OccupationLog, answers: BinaryIO) -> None:
    """Fork a process that sleeps until this one dies, and notes when that was.

    Nobody else can tell exactly: the service may be late to notice, or be dead itself.
    """
    worker = os.getpid()
    if os.fork():
        return
    os.setsid()  # who kills the worker's group does not kill its witness
    for each in (sys.stdin.fileno(), sys.stdout.fileno(), answers.fileno()):
        os.close(each)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal_at_parents_death(signal.SIGUSR1)
    while os.getppid() == worker:
        occupied.beat()
        signal.sigtimedwait([signal.SIGUSR1], BEAT)
    occupied.note("died", time.monotonic())
    os._exit(0)


def main() -> None:
    """Read which device this is, then serve it."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # keep packages' output out of the answers
    die_with_parent()
    keep_bytecode()
    first = read(sys.stdin.buffer)
    if first is None:
        return
    occupied = None
    if "occupied" in first[0]:
        with suppress(OSError):  # a full disk must not stop the device
            occupied = OccupationLog(Path(first[0]["occupied"]))
            start_witness(occupied, answers)
    try:
        device = make(first[0]["kind"], first[0]["options"])
        with needed_packages(device):
            device.warm_up()
    except (QtideError, PhaseError) as error:
        answers.write(frame({"failed": str(error)}))
        return
    Worker(device, answers, occupied).serve(sys.stdin.buffer)


if __name__ == "__main__":
    main()
