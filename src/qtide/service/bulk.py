"""Bulk: work on what is small is done at once, on what is large by processes, in turn."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from qtide.backends.payloads.encoded import Encoded, decode_answer
from qtide.backends.payloads.guard import MOST_CIRCUITS
from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.processes import Child
from qtide.core.world.world import World
from qtide.service.limits import Turns

Words = dict[str, Any]
Done = tuple[Words, bytes]
"""What was read, without its bulk; and the bulk as bytes."""

MOST_VALUES = 4_000_000
"""Commas and brackets of a request: what it has of values is no more than that."""
MOST_NAME = 200


def submission(body: bytes) -> Done:
    """A request of the native API: its fields, and the bytes of its payload."""
    form = _form(body)
    value, data = form.pop("payload", None), form.pop("data", None)
    return form, json.dumps(value).encode() if data is None else _from_base64(data)


def circuits(body: bytes) -> Done:
    """A request of IQM's clients: its fields, with the number of circuits and the first name."""
    form = _form(body)
    batch = form.pop("circuits", None)
    if not isinstance(batch, list) or not 0 < len(batch) <= MOST_CIRCUITS:
        raise PayloadRefused(
            f"the request is wrong at circuits: it is a list of 1 to {MOST_CIRCUITS} circuits"
        )
    for number, circuit in enumerate(batch):
        if not isinstance(circuit, dict) or not _is_name(circuit.get("name", "")):
            raise PayloadRefused(
                f"the request is wrong at circuits.{number}: it is an object, "
                f"with a name of at most {MOST_NAME} characters"
            )
    wanted = ("shots", "calibration_set_id", "heralding_mode")
    return {key: form[key] for key in wanted if key in form} | {
        "name": batch[0].get("name", "")
    }, b""


def measurements(answer: bytes) -> Done:
    """An answer in the format of IQM's clients: every single shot."""
    from qtide.service.apis.iqm_computers import measurements as written

    return {}, written(decode_answer(Encoded("shots", answer))).encode()


def measurement_counts(answer: bytes) -> Done:
    """An answer in the format of IQM's clients: how often what was measured."""
    from qtide.service.apis.iqm_computers import measurement_counts as counted

    return {}, json.dumps(counted(decode_answer(Encoded("shots", answer)))).encode()


WORK: dict[str, Callable[[bytes], Done]] = {
    "submission": submission,
    "circuits": circuits,
    "measurements": measurements,
    "measurement_counts": measurement_counts,
}


def _form(body: bytes) -> Words:
    """The object that a request is; refused before it is read if it has too many values."""
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


SURROGATE = re.compile("[\ud800-\udfff]")


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= MOST_NAME and not SURROGATE.search(text)


SMALL = 16 * 1024
"""Bytes that are worked on at once: the worst of them take two milliseconds."""
PLACES = 2
LIMIT = 20.0
"""Seconds that the work may take."""
COMMAND = (sys.executable, "-m", "qtide.service.bulk_process")


class Bulk:
    """Processes that are started when they are needed; no caller occupies all of them."""

    def __init__(self, world: World, log: IO[bytes] | None = None) -> None:
        self._turns = Turns(world, PLACES, PLACES - 1)
        self._idle: list[Child] = []
        self._log = log

    async def do(self, work: str, data: bytes, who: str) -> Done:
        """The result of one of the kinds of work; a refusal is raised as such."""
        if len(data) <= SMALL:
            return WORK[work](data)
        async with self._turns.turn(who):
            return await self._by_process(work, data)

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await self._idle.pop().kill()

    async def _by_process(self, work: str, data: bytes) -> Done:
        child = await self._take()
        try:
            async with asyncio.timeout(LIMIT):
                child.send({"work": work}, data)
                header, body = await child.message()
        except TimeoutError:
            await child.kill()
            raise PayloadRefused(f"the request took more than {LIMIT:g} s to read") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await child.kill()
            raise PayloadRefused("the request ended the process that read it") from None
        except BaseException:
            await child.kill()
            raise
        self._idle.append(child)
        if "refused" in header:
            raise PayloadRefused(header["refused"])
        return header["words"], body

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        child = await Child.start(COMMAND, self._log)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            async with asyncio.timeout(LIMIT):
                await child.message()
        return child
