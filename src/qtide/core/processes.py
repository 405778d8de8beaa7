"""Frames between a process and its children: a JSON header and a body of bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, BinaryIO

SIZES = struct.Struct("!II")

Header = dict[str, Any]


def frame(header: Header, body: bytes = b"") -> bytes:
    """A message as sent through the pipe."""
    head = json.dumps(header).encode()
    return SIZES.pack(len(head), len(body)) + head + body


def read(pipe: BinaryIO) -> tuple[Header, bytes] | None:
    """The next message; None once the other side is gone."""
    sizes = pipe.read(SIZES.size)
    if len(sizes) < SIZES.size:
        return None
    head, body = SIZES.unpack(sizes)
    data = pipe.read(head + body)
    if len(data) < head + body:
        return None
    return decode(data, head)


def decode(data: bytes, head: int) -> tuple[Header, bytes]:
    """A message without its sizes: the first `head` bytes are the header."""
    header: Header = json.loads(data[:head])
    return header, data[head:]


def die_with_parent() -> None:
    """Let Linux kill us when the parent dies, even while a task holds Python's lock."""
    _at_parents_death(signal.SIGKILL)


def wake_at_parents_death() -> None:
    """Let Linux continue us, should we be stopped, when the parent dies.

    For a process that notices that by itself, at the end of a pipe, and has to clean up. Linux
    counts the parent's thread as the parent: if only that ends, nothing happens.
    """
    _at_parents_death(signal.SIGCONT)


def _at_parents_death(number: signal.Signals) -> None:
    import ctypes

    PR_SET_PDEATHSIG = 1  # noqa: N806 - the kernel's own name
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


BUFFER = 2**20
"""The most bytes that wait to be read."""


class Child:
    """The parent's end of the pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        log: IO[bytes] | int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a command in its own session, so that a Ctrl-C reaches only us.

        Its stderr goes to a log; if that is `asyncio.subprocess.PIPE`, to `complaints`.
        """
        return cls(
            await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                limit=BUFFER,
            )
        )

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.returncode is None

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send a message; the reader of `messages` notices a dead child, so this raises nothing."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(frame(header, body))

    async def message(self) -> tuple[Header, bytes]:
        """The next message; IncompleteReadError or ConnectionError once the child is gone."""
        assert self._process.stdout is not None
        head, body = SIZES.unpack(await self._process.stdout.readexactly(SIZES.size))
        return decode(await self._process.stdout.readexactly(head + body), head)

    async def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """All messages until the child is gone."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                yield await self.message()

    async def complaints(self) -> AsyncIterator[bytes]:
        """What it writes to stderr, if that is a pipe, until it is gone."""
        assert self._process.stderr is not None
        while text := await self._process.stderr.read(BUFFER):
            yield text

    def hang_up(self) -> None:
        """Close its stdin, so that it ends by itself, even if it has yet to start."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        return await self._process.wait()

    async def kill(self) -> None:
        """Kill it, with everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()


MANY = 10_000
"""Objects from which on it matters; for fewer, the collector is left alone."""


@contextmanager
def making(objects: int) -> Iterator[None]:
    """Make many objects that stay: the collector neither interrupts it, nor sees them later."""
    was_on = gc.isenabled() and objects >= MANY
    if was_on:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
