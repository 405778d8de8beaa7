"""The root's station: all lines end here, and every change of the job's size is decided here."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from qtide.errors import QtideError
from qtide.mpi.lines import Line
from qtide.mpi.station import TURN_LIMIT, Station

MEET_LIMIT = 60.0
"""Seconds within which processes that were started together have to have met."""
NOT_MET = f"the processes of an MPI program did not meet within {MEET_LIMIT:g} s"
BYE_LIMIT = 10.0
"""Seconds for members to say good-bye."""


class Hub(Station):
    """Takes calls of newcomers; whoever is not expected, or no longer, is turned away."""

    identity = 0

    def __init__(self, host: str) -> None:
        super().__init__()
        self._key = secrets.token_hex(16)
        self._server = socket.create_server((host, 0))
        self.address = (host, self._server.getsockname()[1])
        self._expected: dict[int, tuple[int, Callable[[], None]]] = {}
        self._lines: dict[int, Line] = {}
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
            line = Line(connection)
            threading.Thread(target=self._serve, args=(line,), daemon=True, name="line").start()

    def _serve(self, line: Line) -> None:
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

    def _admitted(self, word: dict[str, Any], line: Line) -> int | None:
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
