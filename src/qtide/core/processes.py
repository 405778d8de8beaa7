"""Messages between a process and its children: frames of a JSON header and a body of bytes."""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:  # agents start faster without it
    import asyncio

SIZES = struct.Struct("!II")

Header = dict[str, Any]


def frame(header: Header, body: bytes = b"") -> bytes:
    """Encode a message for the pipe."""
    head = json.dumps(header).encode()
    return SIZES.pack(len(head), len(body)) + head + body


def read(pipe: BinaryIO) -> tuple[Header, bytes] | None:
    """Read the next message; None once the other side is gone."""
    sizes = pipe.read(SIZES.size)
    if len(sizes) < SIZES.size:
        return None
    head, body = SIZES.unpack(sizes)
    data = pipe.read(head + body)
    if len(data) < head + body:
        return None
    return decode(data, head)


def decode(data: bytes, head: int) -> tuple[Header, bytes]:
    """Decode a message without its sizes; the first `head` bytes are the header."""
    header: Header = json.loads(data[:head])
    return header, data[head:]


def die_with_parent() -> None:
    """Have Linux kill this process when its parent dies, even while a task holds the GIL."""
    signal_at_parents_death(signal.SIGKILL)


def wake_at_parents_death() -> None:
    """Have Linux resume this process, if it is stopped, when its parent dies.

    For a process that notices the death itself, by the end of a pipe, and has to clean up. Linux
    takes the parent's thread for the parent; if only that thread ends, the signal does no harm.
    """
    signal_at_parents_death(signal.SIGCONT)


def adopt_orphans() -> None:
    """Have Linux make this process the parent of descendants whose own parents have ended."""
    PR_SET_CHILD_SUBREAPER = 36  # noqa: N806 - the kernel's name
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def signal_at_parents_death(number: signal.Signals) -> None:
    """Have Linux send this process a signal when its parent, or the parent's thread, ends."""
    PR_SET_PDEATHSIG = 1  # noqa: N806 - the kernel's name
    _prctl(PR_SET_PDEATHSIG, number)


def _prctl(*words: int) -> None:
    import ctypes  # imported late, so that an agent starts faster

    ctypes.CDLL(None).prctl(*words)


def signal_below(pid: int, number: signal.Signals) -> bool:
    """Send a signal to all descendants of a process; return whether there were any alive.

    Some programs, such as MPI's launchers, put their children into groups and sessions of their
    own, so a signal to the process group would not reach them.
    """
    found = _children(pid)
    for each in found:
        found += _children(each)  # the loop goes over these as well
    for each in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, number)
    return bool(found)


GRACE = 0.3
"""Seconds that processes have to end by themselves, and to end what they have started elsewhere."""
KILL_LIMIT = 5.0
"""Seconds to wait until killed processes are gone; one may be stuck in a system call."""
PAUSE = 0.005


def kill_below(pid: int) -> None:
    """End all descendants of a process: first ask them to, then kill them."""
    for number, limit in ((signal.SIGTERM, GRACE), (signal.SIGKILL, KILL_LIMIT)):
        last = time.monotonic() + limit
        while signal_below(pid, number) and time.monotonic() < last:
            time.sleep(PAUSE)


def _children(pid: int) -> list[int]:
    """The living children of a process, of all its threads."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - faster
            with open(f"/proc/{pid}/task/{thread}/children") as listed:  # noqa: PTH123 - faster
                found += map(int, listed.read().split())
    return [each for each in found if not _is_dead(each)]


def _is_dead(pid: int) -> bool:
    """Whether a process has ended, and its parent has not asked how."""
    try:
        with open(f"/proc/{pid}/stat") as read:  # noqa: PTH123 - faster
            return read.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


BUFFER = 2**20
"""Maximum number of bytes buffered for reading."""


class Child:
    """A child process, seen from the parent's end of the pipes."""

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
        """Start a command in its own session, so that Ctrl-C reaches only the parent.

        Its stderr goes to `log`, or to `complaints` if that is `asyncio.subprocess.PIPE`.
        """
        import asyncio

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
        """Send a message; never raises, as the reader of `messages` notices a dead child."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(frame(header, body))

    async def message(self) -> tuple[Header, bytes]:
        """Read a message; raise IncompleteReadError or ConnectionError once the child is gone."""
        assert self._process.stdout is not None
        head, body = SIZES.unpack(await self._process.stdout.readexactly(SIZES.size))
        return decode(await self._process.stdout.readexactly(head + body), head)

    async def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Yield messages until the child is gone."""
        import asyncio

        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                yield await self.message()

    async def complaints(self) -> AsyncIterator[bytes]:
        """Yield the child's stderr, if it is a pipe, until the child is gone."""
        assert self._process.stderr is not None
        while text := await self._process.stderr.read(BUFFER):
            yield text

    def hang_up(self) -> None:
        """Close the child's stdin, so that it ends by itself even if it has yet to start."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def ended(self) -> int:
        """Wait for the child to end and return its exit code."""
        return await self._process.wait()

    async def kill_all(self) -> None:
        """End the child's descendants, also those in groups of their own, and then the child."""
        import asyncio

        for number, limit in ((signal.SIGTERM, GRACE), (signal.SIGKILL, KILL_LIMIT)):
            last = time.monotonic() + limit
            while self.alive and signal_below(self.pid, number) and time.monotonic() < last:
                await asyncio.sleep(PAUSE)
        await self.kill()

    async def kill(self) -> None:
        """Kill the child and its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()


MANY = 10_000
"""Minimum number of objects for which `making` touches the garbage collector."""


@contextmanager
def making(objects: int) -> Iterator[None]:
    """Pause garbage collection while creating many lasting objects, then exempt them from it."""
    was_on = gc.isenabled() and objects >= MANY
    if was_on:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
