"""What a program hears when nodes that it computes with are gone."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, NoReturn

from qtide.core.errors import PhaseError, QtideError
from qtide.mpi.library import progress


class NodesLost(PhaseError):  # noqa: N818 - what happened
    """Processes of the communicator are gone; `recover()` gives a fresh one."""

    def __init__(self, text: str, ranks: Collection[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(sorted(ranks))


Word = dict[str, Any]

SILENCE = 5
"""Seconds after which a host that no longer answers counts as gone."""


class ControlLine:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._writing = threading.Lock()
        option = connection.setsockopt
        option(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE - 1)
        option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENCE)

    def say(self, word: Word) -> None:
        """Send a word; who listens at the other end notices by itself that the line is cut."""
        with suppress(OSError), self._writing:
            self._connection.sendall(json.dumps(word).encode() + b"\n")

    def words(self) -> Iterator[Word]:
        """What the other end says, until it is gone."""
        with suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            for line in lines:
                yield json.loads(line)

    def cut(self) -> None:
        """Close it: the other end notices at once."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def end_at_once(code: int) -> NoReturn:
    """End this process, whatever its other threads are doing."""
    os._exit(code)


JOIN = "QTIDE_JOIN"
"""The variable that tells a newcomer where the root is, and as what it is expected."""
ORDER_LIMIT = 600.0
"""Seconds within which the root has to say something that a member waits for."""
CALL_LIMIT = 10.0
"""Seconds within which the root has to answer the call of a newcomer."""
TURN_LIMIT = 120.0
"""Seconds within which all members have to have done their part of a change."""
STEP = 0.001
"""Seconds between two calls of MPI while something else is waited for."""


class ControlClient(ABC):
    """What every member knows, the root included."""

    identity: int

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self._verdicts: dict[int, bool] = {}
        self._news = threading.Condition()
        self.failure: str | None = None
        """What a member has raised that all are to raise."""

    def watch(self, members: Collection[int], turn: int | None = None) -> None:
        """Raise NodesLost if one of the members is gone, or if the change was given up."""
        gone = self.lost & set(members) if self.lost else set()
        if gone or (turn is not None and self._verdicts.get(turn) is False):
            ranks = [rank for rank, member in enumerate(members) if member in gone]
            raise NodesLost(_sentence(ranks), ranks)

    @abstractmethod
    def report(self, turn: int, *, well: bool) -> None:
        """Tell how this member's part of a change went."""

    @abstractmethod
    def leave(self) -> None:
        """Part from the others in order: that is no loss."""

    @abstractmethod
    def fail(self, text: str) -> None:
        """Tell all others what this member has raised."""

    @abstractmethod
    def verdict(self, turn: int) -> bool:
        """What the root decided; waits for that."""

    def _heard(self, true: Callable[[], bool], limit: float) -> bool:
        """Wait for news, and let MPI work meanwhile; False if there are none within the limit."""
        last = time.monotonic() + limit
        while True:
            with self._news:
                if self._news.wait_for(true, STEP):
                    return True
            if time.monotonic() > last:
                return False
            progress()

    def _hear_verdict(self, turn: int, well: bool) -> None:
        with self._news:
            self._verdicts[turn] = well
            self._news.notify_all()


class MemberClient(ControlClient):
    """At the other end of a line to the root."""

    def __init__(self, address: tuple[str, int], identity: int, generation: int, key: str) -> None:
        super().__init__()
        self.identity = identity
        self._orders: list[dict[str, Any]] = []
        self._leaving = False
        self._line = ControlLine(_connected(address))
        self._line.say({"hello": identity, "generation": generation, "key": key})
        threading.Thread(target=self._listen, daemon=True, name="line").start()

    @staticmethod
    def told(text: str) -> MemberClient:
        """By what the hub says of one whom it expects."""
        host, port, identity, generation, key = text.split()
        return MemberClient((host, int(port)), int(identity), int(generation), key)

    def report(self, turn: int, *, well: bool) -> None:
        """Over the line."""
        self._line.say({"turn": turn, "well": well})

    def verdict(self, turn: int) -> bool:
        """As the root says."""
        self._until(lambda: turn in self._verdicts)
        return self._verdicts[turn]

    def order(self) -> dict[str, Any]:
        """The next thing that the root wants done."""
        self._until(lambda: bool(self._orders))
        return self._orders.pop(0)

    def leave(self) -> None:
        """Say good-bye; from now on, the root may be gone."""
        self._leaving = True
        self._line.say({"bye": True})

    def fail(self, text: str) -> None:
        """The root tells it to the others."""
        self._line.say({"failed": text})

    def _until(self, true: Callable[[], bool]) -> None:
        if not self._heard(true, ORDER_LIMIT):
            raise QtideError(f"the root of the job said nothing for {ORDER_LIMIT:g} s")

    def _listen(self) -> None:
        try:
            for word in self._line.words():
                self._hear(word)
        finally:
            if not self._leaving:
                end_at_once(0)

    def _hear(self, word: dict[str, Any]) -> None:
        if "lost" in word:
            self.lost.add(word["lost"])
        elif "failed" in word:
            self.failure = word["failed"]
        elif "well" in word:
            self._hear_verdict(word["turn"], word["well"])
        else:
            with self._news:
                self._orders.append(word)
                self._news.notify_all()


def _connected(address: tuple[str, int]) -> socket.socket:
    """A root that is not there any more needs no newcomers: then this process has to end."""
    try:
        connection = socket.create_connection(address, timeout=CALL_LIMIT)
    except OSError:
        end_at_once(0)
    connection.settimeout(None)
    return connection


def _sentence(ranks: list[int]) -> str:
    if not ranks:
        return "the change of the job's size was given up"
    which = ", ".join(map(str, ranks))
    return f"rank {which} of the job is gone; call recover(), and go on from what was saved"


MEET_LIMIT = 60.0
"""Seconds within which processes that were started together have to have met."""
NOT_MET = f"the processes of an MPI program did not meet within {MEET_LIMIT:g} s"
BYE_LIMIT = 10.0
"""Seconds for members to say good-bye."""


class ControlServer(ControlClient):
    """Takes calls of newcomers; whoever is not expected, or no longer, is turned away."""

    identity = 0

    def __init__(self, host: str) -> None:
        super().__init__()
        self._key = secrets.token_hex(16)
        self._server = socket.create_server((host, 0))
        self.address = (host, self._server.getsockname()[1])
        self._expected: dict[int, tuple[int, Callable[[], None]]] = {}
        self._lines: dict[int, ControlLine] = {}
        self._left: set[int] = set()
        self._reports: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        self.turned_away = 0
        threading.Thread(target=self._take_calls, daemon=True, name="hub").start()

    def expect(self, member: int, generation: int, arrived: Callable[[], None]) -> str:
        """Expect a newcomer; gives what it has to know, for its environment."""
        self._expected[member] = (generation, arrived)
        host, port = self.address
        return f"{host} {port} {member} {generation} {self._key}"

    def gather(self, members: Collection[int], publish: Callable[[list[str]], None]) -> None:
        """Wait until members that were started together with us have come."""
        publish([self.expect(member, 0, lambda: None) for member in members])
        if not self._heard(lambda: set(self._lines) >= set(members), MEET_LIMIT):
            raise QtideError(NOT_MET)

    def dismiss(self, member: int) -> None:
        """Neither expect it any more, nor take notice of its end."""
        self._expected.pop(member, None)
        self._left.add(member)
        line = self._lines.pop(member, None)
        if line is not None:
            line.cut()

    def let_go(self, member: int) -> None:
        """A member leaves by itself: its end is no loss."""
        self._left.add(member)

    def lose(self, member: int) -> None:
        """A member is gone: tell the others, unless it was to leave."""
        line = self._lines.pop(member, None)
        if line is not None:
            line.cut()
        if member in self._left or member in self.lost:
            return
        with self._news:
            self.lost.add(member)
            self._news.notify_all()
        self.tell(list(self._lines), {"lost": member})

    def tell(self, members: Collection[int], word: dict[str, Any]) -> None:
        """Say something to members."""
        for member in members:
            if line := self._lines.get(member):
                line.say(word)

    def report(self, turn: int, *, well: bool) -> None:
        """The root's own part."""
        self._note(turn, 0, well)

    def verdict(self, turn: int) -> bool:
        """What `decide` has decided."""
        return self._verdicts[turn]

    def decide(self, turn: int, members: Collection[int], limit: float = TURN_LIMIT) -> bool:
        """Wait for the reports of all who take part, then tell them what becomes of the change."""
        self._heard(lambda: self._settled(turn, set(members)), limit)
        with self._news:
            reports = self._reports.pop(turn, {})
            well = all(reports.get(member) for member in members) and not self.lost & set(members)
        self._hear_verdict(turn, well)
        self.tell([each for each in members if each], {"turn": turn, "well": well})
        return well

    def leave(self) -> None:
        """All have left."""
        self.close()

    def fail(self, text: str) -> None:
        """The first failure counts."""
        if self.failure is None:
            self.failure = text
            self.tell(list(self._lines), {"failed": text})

    def close(self, limit: float | None = None) -> None:
        """Wait a moment for good-byes, then cut all lines."""
        self._heard(lambda: self._left >= set(self._lines), BYE_LIMIT if limit is None else limit)
        self._server.close()
        for member in list(self._lines):
            self.dismiss(member)

    def _settled(self, turn: int, members: set[int]) -> bool:
        reports = self._reports[turn]
        return bool(self.lost & members) or not all(reports.values()) or set(reports) >= members

    def _note(self, turn: int, member: int, well: bool) -> None:
        with self._news:
            self._reports[turn][member] = well
            self._news.notify_all()

    def _take_calls(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            line = ControlLine(connection)
            threading.Thread(target=self._serve, args=(line,), daemon=True, name="line").start()

    def _serve(self, line: ControlLine) -> None:
        words = line.words()
        member = self._admitted(next(words, {}), line)
        if member is None:
            self.turned_away += 1
            line.cut()
            return
        for word in words:
            if "turn" in word:
                self._note(word["turn"], member, bool(word["well"]))
            elif "failed" in word:
                self.fail(word["failed"])
            elif "bye" in word:
                with self._news:
                    self._left.add(member)
                    self._news.notify_all()
        self.lose(member)

    def _admitted(self, word: dict[str, Any], line: ControlLine) -> int | None:
        """The newcomer's number, if it is expected, of this generation, and knows the key."""
        member = word.get("hello")
        generation, arrived = self._expected.get(member, (None, None))  # type: ignore[arg-type]
        known = hmac.compare_digest(str(word.get("key")), self._key)
        if not known or arrived is None or word.get("generation") != generation:
            return None
        assert isinstance(member, int)
        del self._expected[member]
        self._lines[member] = line
        arrived()
        return member


def own_address() -> str:
    """The address of this host as other nodes know it."""
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"
