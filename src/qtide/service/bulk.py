"""Reading and writing of bodies: small ones inline, large ones in processes that may be killed.

An API names the functions that may run there (`Api.bulk`); each takes and returns bytes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import IO, Any

from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.processes import Child
from qtide.core.world.world import World
from qtide.service.limits import FairSemaphore

Done = tuple[dict[str, Any], bytes]
"""The fields of a body without its bulk, and the bulk as bytes."""
Work = Callable[[bytes], Done]
"""A module-level function, which the process can import."""
Writer = Callable[[bytes], Iterator[bytes]]
"""The same for a long result, which it yields in pieces."""
Source = bytes | Callable[[], Awaitable[bytes]]
"""Data, or what reads it. That is called when the caller's turn has come: what is large waits on
disk, however many requests ask for it."""

MOST_VALUES = 4_000_000
"""Maximum number of commas and brackets in a request, which bounds its number of values."""
SMALL = 16 * 1024
"""Largest body in bytes to handle inline; the worst of them takes two milliseconds."""
PLACES = 2
LIMIT = 20.0
"""Maximum seconds of work on a body or a piece."""
COMMAND = (sys.executable, "-m", "qtide.service.bulk_process")


class Bulk:
    """Processes started on demand; no caller can occupy all of them."""

    def __init__(self, world: World, log: IO[bytes] | None = None) -> None:
        self._turns = FairSemaphore(world, "bodies", each=PLACES - 1, total=PLACES)
        self._allowed: set[str] = set()
        self._idle: list[Child] = []
        self._log = log

    def allow(self, works: Iterable[Work | Writer]) -> None:
        """Let the processes run these functions; call this before the first process starts."""
        self._allowed |= {_reference(work) for work in works}

    async def do(self, work: Work, source: Source, who: str) -> Done:
        """Run an allowed function and return its result, or raise its refusal.

        Data that has to be read first may be large.
        """
        if isinstance(source, bytes) and len(source) <= SMALL:
            return work(source)
        late = f"the request took more than {LIMIT:g} s to read"
        lost = "the request ended the process that read it"
        async with self._turn(who, source) as data, self._process(late, lost) as child:
            child.send({"work": _reference(work)}, data)
            async with asyncio.timeout(LIMIT):
                header, body = await child.message()
        if "refused" in header:
            raise PayloadRefused(header["refused"])
        return header["words"], body

    async def stream(self, work: Writer, source: Source, who: str) -> AsyncIterator[bytes]:
        """Yield what an allowed function writes, piece by piece."""
        if isinstance(source, bytes) and len(source) <= SMALL:
            for piece in work(source):
                yield piece
            return
        failed = "the answer could not be written; try again"
        async with self._turn(who, source) as data, self._process(failed, failed) as child:
            child.send({"work": _reference(work)}, data)
            header: dict[str, Any] = {"more": True}
            while "more" in header:
                async with asyncio.timeout(LIMIT):
                    header, piece = await child.message()
                if piece:
                    yield piece
        if "refused" in header:
            raise PayloadRefused(header["refused"])

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await self._idle.pop().kill()

    @asynccontextmanager
    async def _turn(self, who: str, source: Source) -> AsyncIterator[bytes]:
        """Wait for the caller's turn, and only then read the data."""
        async with self._turns.turn(who):
            yield source if isinstance(source, bytes) else await source()

    @asynccontextmanager
    async def _process(self, late: str, lost: str) -> AsyncIterator[Child]:
        """A process for one body; if anything goes wrong it is killed, otherwise kept.

        `late` and `lost` are the refusals if it takes too long, or ends.
        """
        child = await self._take()
        try:
            yield child
        except TimeoutError:
            await child.kill()
            raise PayloadRefused(late) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await child.kill()
            raise PayloadRefused(lost) from None
        except BaseException:
            await child.kill()
            raise
        self._idle.append(child)

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        child = await Child.start((*COMMAND, *sorted(self._allowed)), self._log)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            async with asyncio.timeout(LIMIT):
                await child.message()
        return child


def _reference(work: Work | Writer) -> str:
    return f"{work.__module__}:{work.__name__}"


def read_submission(body: bytes) -> Done:
    """Read a request of the native API: its fields, and its payload as bytes."""
    form = read_form(body)
    value, data = form.pop("payload", None), form.pop("data", None)
    return form, json.dumps(value).encode() if data is None else _from_base64(data)


def read_form_alone(body: bytes) -> Done:
    """Read a request that has only fields."""
    return read_form(body), b""


def read_form(body: bytes) -> dict[str, Any]:
    """Parse a request as a JSON object; refuse one with too many values before parsing it."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise PayloadRefused("the request has too many values; send less at once")
    try:
        form = json.loads(body)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PayloadRefused(f"the request is wrong at its body: no JSON: {why}") from None
    if not isinstance(form, dict):
        raise PayloadRefused("the request is wrong at its body: it is a JSON object")
    return form


def _from_base64(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise PayloadRefused("`data` has to be base64; a JSON payload goes to `payload`") from None
