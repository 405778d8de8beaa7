"""The driver's end of the pipe to an agent: sends tasks, takes answers, notices the end."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import sys
from contextlib import suppress
from pathlib import Path

from qtide.clusters.cluster import Node, Work
from qtide.errors import PhaseError
from qtide.programs.values import Packed
from qtide.wire import SIZES, Header, frame

START_LIMIT = 30.0
"""Seconds within which an agent has to answer for the first time."""


class TaskFailed(PhaseError):  # noqa: N818 - what happened
    """A task raised something that cannot be brought back; the text is what there is."""


class Link:
    """The process of one node, and the pipe to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.node: Node | None = None
        self._works: dict[int, Work] = {}

    async def greet(self) -> None:
        """Wait for its first word, then listen."""
        await asyncio.wait_for(self._message(), START_LIMIT)
        self._listener = asyncio.create_task(self._listen())

    def send(self, ticket: int, work: Work) -> None:
        """Hand over a task."""
        values = work.job.values
        task = work.task
        packed = values.pack((task.function, task.args, work.kwargs), by_value=True)
        header: Header = {
            "ticket": ticket,
            "values": str(values.folder.absolute()),
            "path": [str(Path(place).absolute()) for place in sys.path],
            "file": packed.file,
            "buffers": packed.buffers,
        }
        self._works[ticket] = work
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # the listener hears of its end as well
            self._process.stdin.write(frame(header, packed.data))

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def kill(self) -> None:
        """End it, with everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _listen(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self._answer(*await self._message())
        code = await self._process.wait()
        if self.node is not None:
            self.node.lose(f"lost its agent ({_ending(code)})")

    async def _message(self) -> tuple[Header, bytes]:
        assert self._process.stdout is not None
        head, body = SIZES.unpack(await self._process.stdout.readexactly(SIZES.size))
        data = await self._process.stdout.readexactly(head + body)
        return json.loads(data[:head]), data[head:]

    def _answer(self, header: Header, body: bytes) -> None:
        work = self._works.pop(header["ticket"])
        if self.node is None:
            return
        ticket, result, error = header["ticket"], None, None
        if "error" in header:
            error = _failure(work, self.node.name, header, body)
        else:
            try:
                packed = Packed(body, header["file"], tuple(header["buffers"]))
                result = work.job.values.unpack(packed)
            except Exception as unreadable:
                error = unreadable
        self.node.deliver(ticket, result, error)


def _failure(work: Work, node: str, header: Header, body: bytes) -> Exception:
    """What the task raised, with a note of where: the task, the node, the user's own lines."""
    error = _unpickled(body) or TaskFailed(header["error"])
    error.add_note(f"in the task {work.task.name} on node {node}")
    for line in header["lines"]:
        error.add_note(f"  {line}")
    return error


def _unpickled(body: bytes) -> Exception | None:
    try:
        error = pickle.loads(body)
    except Exception:
        return None
    return error if isinstance(error, Exception) else None


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
