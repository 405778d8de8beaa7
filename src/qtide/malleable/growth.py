"""A growth that was asked for: its newcomers, from the request to their arrival."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from qtide.mpi.library import progress

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
