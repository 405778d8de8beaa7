"""The validator: looks at payloads before they are accepted, in a process that may be sacrificed.

It is a second worker of the same device, which never runs anything. A payload that hangs it or
kills it is refused; everybody else's wait a moment longer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import IO

from qtide.devices.process import Process, WorkerLost
from qtide.payloads.encoded import Encoded, decode
from qtide.payloads.payload import Burst, PayloadRefused
from qtide.service.configuration import DeviceSetup

LIMIT = 5.0
"""Seconds that a check may take."""


@dataclass(frozen=True)
class Checked:
    """A payload that the device takes, as it should be stored, and how many circuits it has."""

    encoded: Encoded
    size: int = 1
    seconds: float | None = None
    """How long it takes, if it says so itself."""


class Validator:
    """One process, started when it is first needed."""

    def __init__(self, setup: DeviceSetup, log: IO[bytes]) -> None:
        self._setup = setup
        self._log = log
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._numbers = count()

    async def check(self, encoded: Encoded) -> Checked:
        """Refuse a payload, with a sentence, or say what it is."""
        if encoded.format == "burst":
            burst: Burst = decode(encoded)
            return Checked(encoded, seconds=burst.seconds)
        async with self._turn:
            process = await self._employed()
            try:
                async with asyncio.timeout(LIMIT):
                    return await self._ask(process, encoded)
            except TimeoutError:
                await self.close()
                raise PayloadRefused(f"the payload took more than {LIMIT:g} s to check") from None

    async def warm_up(self) -> None:
        """Be there before the first payload is."""
        async with self._turn:
            with suppress(WorkerLost):
                await self._employed()

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.end()

    async def _employed(self) -> Process:
        if self._process is None:
            setup = self._setup
            self._process = await Process.start(setup.kind, setup.options, setup.python, self._log)
        return self._process

    async def _ask(self, process: Process, encoded: Encoded) -> Checked:
        ticket = f"check {next(self._numbers)}"
        process.send({"ticket": ticket, "check": True, "format": encoded.format}, encoded.data)
        async for header, body in process.replies():
            if header["ticket"] != ticket:  # of one that nobody waits for any more
                continue
            if "away" in header:
                raise WorkerLost(f"the payload cannot be checked now: {header['away']}")
            if "refused" in header:
                raise PayloadRefused(header["refused"])
            return Checked(Encoded(header["format"], body), header["size"])
        await self.close()
        raise PayloadRefused("the payload ended the process that checked it")
