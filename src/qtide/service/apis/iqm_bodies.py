"""Reading of requests and writing of answers in the formats of IQM's clients.

A separate process handles large ones, so this imports neither the service nor the web framework.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from qtide.backends.payloads.guard import MOST_CIRCUITS
from qtide.backends.payloads.payload import Encoded, PayloadRefused, decode_answer
from qtide.backends.payloads.shots import Shots
from qtide.service.bulk import Done, read_form

MOST_NAME = 200
ROWS = 20_000
"""Shots to write at a time."""


def read_circuits(body: bytes) -> Done:
    """Read a request's fields, the number of its circuits and the first one's name."""
    form = read_form(body)
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
        "name": batch[0].get("name", ""),
        "number": len(batch),
    }, b""


def write_measurements(answer: bytes) -> Iterator[bytes]:
    """Write an answer for IQM's clients: per circuit and key, one row per shot."""
    yield b"["
    for number, shots in enumerate(decode_answer(Encoded("shots", answer))):
        yield b",{" if number else b"{"
        columns = _columns(shots)
        for place, (key, width) in enumerate(shots.registers):
            yield f"{',' if place else ''}{json.dumps(key)}:[".encode()
            yield from _rows([next(columns) for _ in range(width)])
            yield b"]"
        yield b"}"
    yield b"]"


def write_counts(answer: bytes) -> Iterator[bytes]:
    """Write an answer for IQM's clients: how often each result was measured."""
    yield b"["
    for number, shots in enumerate(decode_answer(Encoded("shots", answer))):
        # Qiskit puts the last register first, and the highest bit of each first
        counts = {bits.replace(" ", "")[::-1]: often for bits, often in shots.counts().items()}
        keys = [key for key, _ in shots.registers]
        written = json.dumps({"measurement_keys": keys, "counts": counts})
        yield f"{',' if number else ''}{written}".encode()
    yield b"]"


SURROGATE = re.compile("[\ud800-\udfff]")


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= MOST_NAME and not SURROGATE.search(text)


BITS = [bytes(b"01"[byte >> bit & 1] for byte in range(256)) for bit in range(8)]
"""For each bit position, a translation table from bytes to the digit of that bit."""


def _columns(shots: Shots) -> Iterator[str]:
    """Yield the digits of each bit, one per shot."""
    width = sum(width for _, width in shots.registers)
    step = (width + 7) // 8
    for bit in range(width):
        yield shots.data[bit // 8 :: step].translate(BITS[bit % 8]).decode()


def _rows(columns: list[str]) -> Iterator[bytes]:
    """Yield one row of digits per shot, `ROWS` at a time."""
    for first in range(0, len(columns[0]), ROWS):
        some = [column[first : first + ROWS] for column in columns]
        rows = some[0] if len(some) == 1 else map(",".join, zip(*some, strict=True))
        yield f"{',' if first else ''}[{'],['.join(rows)}]".encode()
