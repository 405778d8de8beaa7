"""A member's knowledge of the others: who is lost, and what became of each change.

The root decides every change: it is done if all who take part report so, and otherwise everyone
stays with what there was before. Nobody else decides, so no two members can disagree.
"""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from qtide.errors import QtideError
from qtide.mpi.library import progress
from qtide.mpi.lines import Line, end_at_once
from qtide.mpi.lost import NodesLost

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


class Station(ABC):
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


class MemberStation(Station):
    """At the other end of a line to the root."""

    def __init__(self, address: tuple[str, int], identity: int, generation: int, key: str) -> None:
        super().__init__()
        self.identity = identity
        self._orders: list[dict[str, Any]] = []
        self._leaving = False
        self._line = Line(_connected(address))
        self._line.say({"hello": identity, "generation": generation, "key": key})
        threading.Thread(target=self._listen, daemon=True, name="line").start()

    @staticmethod
    def told(text: str) -> MemberStation:
        """By what the hub says of one whom it expects."""
        host, port, identity, generation, key = text.split()
        return MemberStation((host, int(port)), int(identity), int(generation), key)

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
