"""A child process, an agent or a device, that exchanges frames over its stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import IO

from qtide.system.frames import SIZES, Header, decode, frame

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
