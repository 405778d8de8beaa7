"""Where a job's further nodes come from: this machine, or a companion of Slurm for each."""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from itertools import count

Process = asyncio.subprocess.Process


class Held(ABC):
    """One node that was granted."""

    name: str
    label = ""

    @abstractmethod
    async def start(self, words: list[str], variables: Mapping[str, str]) -> Process:
        """Start a process on it."""

    @abstractmethod
    async def gone(self) -> None:
        """Return if the node is taken away."""

    @abstractmethod
    async def end(self) -> None:
        """Give it back; returns when that is done."""


class Nodes(ABC):
    """Grants nodes, one at a time, so that each can be given back alone."""

    @abstractmethod
    async def grant(self) -> Held:
        """Wait for a node, for as long as it takes."""

    @abstractmethod
    async def close(self) -> None:
        """All nodes were given back."""


class LocalNodes(Nodes):
    """Processes of this machine; there are as many nodes as are asked for."""

    def __init__(self) -> None:
        self._numbers = count(2)

    async def grant(self) -> Held:
        """At once."""
        return _LocalNode(f"n{next(self._numbers)}")

    async def close(self) -> None:
        """There is nothing to close."""


class _LocalNode(Held):
    def __init__(self, name: str) -> None:
        self.name = name

    async def start(self, words: list[str], variables: Mapping[str, str]) -> Process:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            env=os.environ | dict(variables),
            start_new_session=True,
        )

    async def gone(self) -> None:
        await asyncio.Event().wait()

    async def end(self) -> None:
        return


async def ended(process: Process, limit: float) -> None:
    """Wait until a process has ended; kill it, with all it started, when the limit is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
