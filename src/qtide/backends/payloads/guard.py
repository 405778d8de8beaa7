"""Reading untrusted bytes. Vendors' readers believe any length that the bytes claim: four bytes
can claim four gigabytes, and a reader that gets no memory takes its process down. So a child
process with little memory and little time reads them first and packs the result again with our
own packer; only that is read here.
"""

from __future__ import annotations

import faulthandler
import os
import re
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.sandbox import confine

MOST_BYTES = 16 * 2**20
"""Of an encoded payload."""

MOST_ANSWER = 2**27
"""Bytes of an encoded answer."""

MOST_CIRCUITS = 10_000
"""In a batch."""

MOST_INSTRUCTIONS = 100_000
"""In a circuit; instructions in branches are counted by the device."""

MOST_QUBITS = 1_000
"""In a circuit; the limit for its classical bits is the same."""

MOST_VARIABLES = 100_000
"""In a binary quadratic model."""

MOST_TEXT = 1_000
"""Characters in a name or a key."""

READING_SECONDS = 10.0
"""That a vendor's reader may take to decode circuits."""

READING_BYTES = 2**29
"""Memory that a vendor's reader may take in addition to what its process already has."""


MOST_MESSAGE = 200
"""The most characters of a vendor's message."""

NICENESS = 15
"""Of readers: whoever is served goes first."""

_FINE, _REFUSED, _FAILED = b"+", b"-", b"!"


def guarded(read: Callable[[bytes], bytes], data: bytes, what: str) -> bytes:
    """What `read` makes of the data; PayloadRefused if it fails, dies or takes too long."""
    receiving, sending = os.pipe()
    child = _fork()
    if child == 0:
        os.close(receiving)
        _serve(read, data, sending)
    os.close(sending)
    try:
        answer = _receive(receiving, time.monotonic() + READING_SECONDS)
    finally:
        os.close(receiving)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return _judged(answer, what)


def _judged(answer: bytes | None, what: str) -> bytes:
    if answer is None:
        raise PayloadRefused(f"reading {what} took more than {READING_SECONDS:g} s")
    if answer.startswith(_FINE):
        return answer[1:]
    if answer.startswith(_REFUSED):
        raise PayloadRefused(answer[1:].decode())
    reason = answer[1:].decode() or "it claims more than memory holds"
    raise PayloadRefused(f"{what} cannot be read: {reason}")


def _fork() -> int:
    """A fork; the child only reads, so the threads of its parent do not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(read: Callable[[bytes], bytes], data: bytes, sending: int) -> NoReturn:
    """All that the child does; whatever happens, it never returns into the parent's code."""
    try:
        _confine()
        answer = _FINE + read(data)
    except PayloadRefused as error:
        answer = _REFUSED + str(error).encode(errors="replace")
    except BaseException as error:  # a Rust panic is not an Exception
        answer = _FAILED + plain(error).encode(errors="replace")
    try:
        while answer:
            answer = answer[os.write(sending, answer) :]
    finally:
        os._exit(0)


def _confine() -> None:
    """Silence readers, which print what they stumble on, and leave them nothing but to read."""
    faulthandler.disable()  # a reader's death is expected: no need to log it
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.nice(NICENESS)
    confine(READING_BYTES)


def plain(error: BaseException) -> str:
    """Enough of a vendor's message to act on, without colours and frames."""
    text = re.sub(r"\x1b\[\d*m", "", str(getattr(error, "message", error)))
    words = "".join(c if c.isascii() and c.isprintable() else " " for c in text).split()
    return " ".join(words)[:MOST_MESSAGE] or type(error).__name__


def _receive(receiving: int, end: float) -> bytes | None:
    """All that the child writes; None if it does not finish in time."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([receiving], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        part = os.read(receiving, 2**20)
        if not part:
            return b"".join(parts)
        parts.append(part)
