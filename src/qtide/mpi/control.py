"""The control connections of an MPI job: one TCP connection from every member to the root.

MPI hangs when a process is gone, so members agree here on everything that must survive a loss. The
root has a `ControlServer`, every other member a `MemberClient`; both are `ControlClient`s, which
know which members are lost and how each change of size ended. A message is a JSON object on one
line; docs/mpi.md lists them. The ranks of a compiled program, including rank 0, speak the same
protocol with a `ControlServer` in rank 0's helper.
"""

from __future__ import annotations

import hmac
import os
import pickle
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NoReturn

from qtide.core.errors import PhaseError, QtideError
from qtide.mpi.control_line import ControlLine, Message

JOIN = "QTIDE_JOIN"
"""Environment variable with a newcomer's invitation: the root's address, its own number, a key."""
ORDER_LIMIT = 600.0
"""Seconds that a member waits for a message from the root."""
CALL_LIMIT = 10.0
"""Seconds that connecting to the root may take."""
CHANGE_LIMIT = 120.0
"""Seconds within which all members must report on a change of the job's size."""
NOTICE_LIMIT, SETTLE_LIMIT = 60.0, 90.0
"""Seconds within which a member must notice a loss, or is lost itself; that others wait for it."""
MEET_LIMIT = 60.0
"""Seconds within which processes that were started together must connect."""
NOT_MET = f"the processes of the MPI program did not meet within {MEET_LIMIT:g} s; start it again"
HELLO_BYTES = 1024
"""The longest line accepted from a caller not yet admitted."""
CALLERS = 32
"""The most callers connected but not yet admitted; beyond that, the oldest is dropped."""
DESCRIPTOR_PAUSE = 0.05
"""Seconds before the next accept if the process has run out of file descriptors."""
LEAVE_LIMIT = 10.0
"""Seconds that the root waits for members to leave."""
POLL = 0.001
"""Seconds between two calls to MPI while waiting for a message."""


def _nothing() -> None:
    """Do nothing: this process has no MPI."""


def _ignore(member: int, message: Message) -> None:
    """Ignore requests: the ranks of a Python program make none."""


class NodesLost(PhaseError):  # noqa: N818 - what happened
    """Processes of the communicator are gone; `Job.recover()` creates a new one."""

    def __init__(self, text: str, ranks: Collection[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(sorted(ranks))


class NotNeeded(QtideError):  # noqa: N818 - what happened
    """The root has ended, or has no use for this newcomer."""


class ControlClient(ABC):
    """What each member, including the root, knows about the others."""

    identity: int

    def __init__(self, idle: Callable[[], None] = _nothing) -> None:
        self._idle = idle
        """Called repeatedly while waiting, so that MPI can progress."""
        self.lost: set[int] = set()
        self.failure: str | None = None
        """The exception of one member, which all others raise too."""
        self._settled = 0
        """Of the lost members, how many all others know."""
        self._verdicts: dict[int, bool] = {}
        self._news = threading.Condition()

    def watch(self, members: Collection[int], change: int | None = None) -> None:
        """Do as `check`, but raise only when all other members know of the loss.

        The program may then change what it was sending, and nobody takes what comes late for an
        answer.
        """
        if not self.lost and self.failure is None and change is None:
            return
        try:
            self.check(members, change)
        except NodesLost:
            self.settle()
            raise

    def check(self, members: Collection[int], change: int | None = None) -> None:
        """Raise another member's exception, or NodesLost if a member or the change is lost."""
        if self.failure is not None:
            raise pickle.loads(b64decode(self.failure))
        gone = self.lost & set(members)
        if gone or (change is not None and self._verdicts.get(change) is False):
            ranks = [rank for rank, member in enumerate(members) if member in gone]
            raise NodesLost(_loss_text(ranks), ranks)

    @abstractmethod
    def settle(self) -> None:
        """Wait until all members know of all losses that this one knows."""

    @abstractmethod
    def report(self, change: int, *, success: bool) -> None:
        """Report how this member's part of a change went."""

    @abstractmethod
    def verdict(self, change: int) -> bool:
        """Wait for the root's decision on a change; True if it is made."""

    @abstractmethod
    def fail(self, text: str) -> None:
        """Send this member's exception to all others."""

    @abstractmethod
    def leave(self) -> None:
        """Leave cleanly, so that it does not count as a loss."""

    def _wait_for(self, condition: Callable[[], bool], limit: float) -> bool:
        """Wait until the condition holds; False after `limit` seconds."""
        last = time.monotonic() + limit
        while True:
            with self._news:
                if self._news.wait_for(condition, POLL):
                    return True
            if time.monotonic() > last:
                return False
            self._idle()

    def _set_verdict(self, change: int, success: bool) -> None:
        with self._news:
            self._verdicts[change] = success
            self._news.notify_all()


def _loss_text(ranks: list[int]) -> str:
    if not ranks:
        return "the change of the job's size was given up"
    which = ", ".join(map(str, ranks))
    return f"rank {which} of the job is gone; call recover() to go on from what was saved"


class MemberClient(ControlClient):
    """A member's connection to the root. The process ends when the root is gone.

    With `outlives`, a newcomer that has no order to join raises NotNeeded instead.
    """

    def __init__(
        self,
        invitation: str,
        idle: Callable[[], None] = _nothing,
        *,
        ready: bool = True,
        outlives: bool = False,
    ) -> None:
        super().__init__(idle)
        self._outlives = outlives
        self._dismissed = False
        host, port, identity, generation, key = invitation.split()
        self.identity = int(identity)
        self._orders: list[Message] = []
        self._leaving = False
        try:
            connection = socket.create_connection((host, int(port)), timeout=CALL_LIMIT)
        except OSError:  # a root that is gone needs no newcomers
            if outlives:
                raise NotNeeded("the root of the job is gone") from None
            exit_now(0)
        connection.settimeout(None)
        self._line = ControlLine(connection)
        hello = {"hello": self.identity, "generation": int(generation), "key": key}
        self._line.send(hello if ready else hello | {"ready": False})
        threading.Thread(target=self._listen, daemon=True, name="control").start()

    def settle(self) -> None:
        """Ask the root to answer when they do."""
        known = len(self.lost)
        if self._settled < known:
            self._line.send({"ask": "settle", "ticket": known})
            self._wait_for(lambda: self._settled >= known, SETTLE_LIMIT)
            self._settled = max(known, self._settled)

    def report(self, change: int, *, success: bool) -> None:
        """Send the report to the root."""
        self._line.send({"change": change, "success": success})

    def verdict(self, change: int) -> bool:
        """Wait for the root's message."""
        self._wait_for_root(lambda: change in self._verdicts)
        return self._verdicts[change]

    def order(self) -> Message:
        """Wait for the root's next order."""
        self._wait_for_root(lambda: bool(self._orders) or self._dismissed)
        if self._dismissed:
            raise NotNeeded("the root of the job is gone")
        self._outlives = False
        return self._orders.pop(0)

    def ask(self, what: str) -> Message:
        """Ask the root and wait for its answer."""
        self._line.send({"ask": what, "ticket": 0})
        return self.order()

    def get_ready(self) -> None:
        """Tell the root that this newcomer, which was on its way, can join."""
        self._line.send({"ready": True})

    def fail(self, text: str) -> None:
        """Send the exception to the root, which forwards it."""
        self._line.send({"failed": text})

    def leave(self) -> None:
        """Tell the root; from now on it may disappear without ending this process."""
        self._leaving = True
        self._line.send({"leave": True})

    def _wait_for_root(self, condition: Callable[[], bool]) -> None:
        if not self._wait_for(condition, ORDER_LIMIT):
            raise QtideError(f"the root of the job sent nothing for {ORDER_LIMIT:g} s")

    def _listen(self) -> None:
        try:
            for message in self._line.messages():
                self._receive(message)
        finally:
            if self._outlives:
                with self._news:
                    self._dismissed = True
                    self._news.notify_all()
            elif not self._leaving:
                exit_now(0)

    def _receive(self, message: Message) -> None:
        if "lost" in message:
            self.lost.add(message["lost"])
            # from now on no operation of this member succeeds
            self._line.send({"noticed": message["lost"]})
        elif "settled" in message:
            with self._news:
                self._settled = max(self._settled, message["answer"])
                self._news.notify_all()
        elif "failed" in message:
            self.failure = message["failed"]
        elif "success" in message:
            self._set_verdict(message["change"], message["success"])
        else:
            with self._news:
                self._orders.append(message)
                self._news.notify_all()


class ControlServer(ControlClient):
    """The root's end of all control connections; it admits only expected callers."""

    identity = 0

    def __init__(self, host: str, idle: Callable[[], None] = _nothing) -> None:
        super().__init__(idle)
        self._key = secrets.token_hex(16)
        self._server = socket.create_server((host, 0))
        self.address = (host, self._server.getsockname()[1])
        self._expected: dict[int, tuple[int, Callable[[], None]]] = {}
        self._lines: dict[int, ControlLine] = {}
        self._left: set[int] = set()
        self._reports: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        self._callers: list[ControlLine] = []
        self._closed = False
        self._unaware: defaultdict[int, set[int]] = defaultdict(set)
        """By lost member, the members that have not noticed the loss yet."""
        self._on_ready: dict[int, Callable[[], None]] = {}
        """By newcomer that is connected but still on its way to the others, what to call then."""
        self.asked: Callable[[int, Message], None] = _ignore
        """Called with a member's number and its request, a message with `ask`."""
        self.rejected = 0
        """How many callers were rejected."""
        threading.Thread(target=self._accept, daemon=True, name="control").start()

    @property
    def connected(self) -> frozenset[int]:
        """The members that are connected."""
        return frozenset(self._lines)

    def expect(self, member: int, generation: int, arrived: Callable[[], None]) -> str:
        """Expect a newcomer; return its invitation."""
        self._expected[member] = (generation, arrived)
        host, port = self.address
        return f"{host} {port} {member} {generation} {self._key}"

    def gather(self, members: Collection[int], publish: Callable[[list[str]], None]) -> None:
        """Invite the members that were started with the root, and wait for them."""
        publish([self.expect(member, 0, lambda: None) for member in members])
        if not self._wait_for(lambda: self.connected >= set(members), MEET_LIMIT):
            raise QtideError(NOT_MET)

    def dismiss(self, member: int) -> None:
        """Disconnect a member or stop expecting it; its end does not count as a loss."""
        self._expected.pop(member, None)
        self._left.add(member)
        line = self._lines.pop(member, None)
        if line is not None:
            line.close()

    def let_leave(self, member: int) -> None:
        """Let a member leave on its own; its end does not count as a loss."""
        self._left.add(member)

    def ended(self, member: int) -> None:
        """Lose a member whose process has ended, unless the last that it has sent is its leave."""
        line = self._lines.get(member)
        if line is None:
            self.lose(member)
        else:
            line.end()  # its thread reads what has come, and then loses it

    def lose(self, member: int) -> None:
        """Tell all others that a member is lost, unless it was leaving anyway."""
        line = self._lines.pop(member, None)
        if line is not None:
            line.close()
        with self._news:
            for each in self._unaware.values():
                each.discard(member)
            known = member in self._left or member in self.lost
            if not known:
                self.lost.add(member)
                self._unaware[member] = set(self._lines)
            self._news.notify_all()
        if known:
            return
        self.send(list(self._lines), {"lost": member})

    def settle(self) -> None:
        """Wait until all members know of all losses; who does not notice one is lost itself."""

        def settled() -> bool:
            return not any(self._unaware.values())

        if not self._wait_for(settled, NOTICE_LIMIT):
            for member in set().union(*self._unaware.values()):
                self.lose(member)

    def _answer_settled(self, member: int, ticket: int) -> None:
        self.settle()
        self.send([member], {"answer": ticket, "settled": True})

    def send(self, members: Collection[int], message: Message) -> None:
        """Send a message to the given members, if connected."""
        for member in members:
            if line := self._lines.get(member):
                line.send(message)

    def report(self, change: int, *, success: bool) -> None:
        """Record the root's own report."""
        self._note(change, 0, success)

    def decide(
        self,
        change: int,
        members: Collection[int],
        leaving: Collection[int] = (),
        limit: float = CHANGE_LIMIT,
    ) -> bool:
        """Wait for all members' reports, then tell them whether the change is made.

        If it is, the end of those that are `leaving` is no loss; until then it is one.
        """
        self._wait_for(lambda: self._decidable(change, set(members)), limit)
        with self._news:
            reports = self._reports.pop(change, {})
            success = all(map(reports.get, members)) and not self.lost & set(members)
            if success:
                self._left.update(leaving)
        self._set_verdict(change, success)
        self.send(members, {"change": change, "success": success})
        return success

    def verdict(self, change: int) -> bool:
        """Return the result of `decide`."""
        return self._verdicts[change]

    def fail(self, text: str) -> None:
        """Forward the first exception to all members."""
        if self.failure is None:
            self.failure = text
            self.send(list(self._lines), {"failed": text})

    def leave(self) -> None:
        """Wait for all others to leave, then close."""
        self.close()

    def close(self, limit: float = LEAVE_LIMIT) -> None:
        """Give members `limit` seconds to leave, then close all connections."""
        self._wait_for(lambda: self._left >= set(self._lines), limit)
        self._closed = True
        with suppress(OSError):  # shutdown interrupts a blocked accept
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for member in list(self._lines):
            self.dismiss(member)

    def _decidable(self, change: int, members: set[int]) -> bool:
        reports = self._reports[change]
        return bool(self.lost & members) or not all(reports.values()) or set(reports) >= members

    def _note(self, change: int, member: int, success: bool) -> None:
        with self._news:
            self._reports[change][member] = success
            self._news.notify_all()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
                line = ControlLine(connection)
                serving = threading.Thread(target=self._serve, args=(line,), daemon=True)
                with self._news:
                    self._callers.append(line)
                    late = self._callers[:-CALLERS]
                for each in late:  # their threads end and remove them from the list
                    each.close()
                serving.start()
            except (OSError, RuntimeError):  # out of descriptors or threads: retry later
                time.sleep(DESCRIPTOR_PAUSE)

    def _serve(self, line: ControlLine) -> None:
        messages = line.messages(HELLO_BYTES)
        member = self._admit(next(messages, {}), line)
        with self._news:
            self._callers.remove(line)
        if member is None:
            self.rejected += 1
            line.close()
            return
        for message in line.messages():
            if message.get("ask") == "settle":
                terms = (member, message.get("ticket"))  # a thread: this one hears who has noticed
                threading.Thread(target=self._answer_settled, args=terms, daemon=True).start()
            elif "ask" in message:
                self.asked(member, message)
            elif "change" in message:
                self._note(message["change"], member, bool(message.get("success")))
            elif "failed" in message:
                self.fail(message["failed"])
            elif "noticed" in message:
                with self._news:
                    self._unaware[message["noticed"]].discard(member)
                    self._news.notify_all()
            elif "ready" in message:
                self._on_ready.pop(member, _nothing)()
            elif "leave" in message:
                with self._news:
                    self._left.add(member)
                    self._news.notify_all()
        self._on_ready.pop(member, None)
        self.lose(member)

    def _admit(self, message: Message, line: ControlLine) -> int | None:
        """Return the caller's number if it is expected and has the right generation and key."""
        member = message.get("hello")
        key = str(message.get("key")).encode(errors="replace")
        if not isinstance(member, int) or not hmac.compare_digest(key, self._key.encode()):
            return None
        generation, arrived = self._expected.get(member, (None, None))
        if arrived is None or message.get("generation") != generation:
            return None
        del self._expected[member]
        self._lines[member] = line
        if message.get("ready", True):
            arrived()
        else:
            self._on_ready[member] = arrived
        return member


def exit_now(code: int) -> NoReturn:
    """End this process immediately, whatever its other threads are doing."""
    os._exit(code)


def own_address() -> str:
    """Return the address by which other nodes reach this host."""
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"
