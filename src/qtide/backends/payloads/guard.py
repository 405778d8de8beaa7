"""Read untrusted bytes with vendors' readers.

Vendors' readers trust any length in the bytes: four bytes can claim four gigabytes, and a reader
that runs out of memory takes its process down. So a child process with limited memory and time
reads the bytes first and repacks the result with our own packer; only that is read here.
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
"""The most bytes of an encoded payload."""

MOST_ANSWER = 2**27
"""The most bytes of an encoded answer."""

MOST_CIRCUITS = 10_000
"""The most circuits in a batch."""

MOST_INSTRUCTIONS = 100_000
"""The most instructions in a circuit; the device counts those in branches."""

MOST_QUBITS = 1_000
"""The most qubits, and the most classical bits, in a circuit."""

MOST_VARIABLES = 100_000
"""The most variables in a binary quadratic model."""

MOST_TEXT = 1_000
"""The most characters in a name or a key."""

READING_SECONDS = 10.0
"""Seconds that a vendor's reader may take to decode circuits."""

READING_BYTES = 2**29
"""Bytes of memory that a vendor's reader may use beyond what its process already has."""

MOST_MESSAGE = 200
"""How many characters of a vendor's message are passed on."""

NICENESS = 15
"""The niceness of readers, which yield to requests being served."""

_FINE, _REFUSED, _FAILED = b"+", b"-", b"!"


def guarded(read: Callable[[bytes], bytes], data: bytes, what: str) -> bytes:
    """Run `read` in a child process; raise PayloadRefused if it fails, dies or takes too long."""
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        # the child only reads, so its parent's threads do not matter
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(receiving)
        _read_and_exit(read, data, sending)
    os.close(sending)
    try:
        answer = _receive(receiving, time.monotonic() + READING_SECONDS)
    finally:
        os.close(receiving)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise PayloadRefused(f"reading {what} took more than {READING_SECONDS:g} s")
    if answer.startswith(_FINE):
        return answer[1:]
    if answer.startswith(_REFUSED):
        raise PayloadRefused(answer[1:].decode())
    reason = answer[1:].decode() or "it claims more than memory holds"
    raise PayloadRefused(f"{what} cannot be read: {reason}")


def _read_and_exit(read: Callable[[bytes], bytes], data: bytes, sending: int) -> NoReturn:
    """Do the child's work; whatever happens, never return into the parent's code."""
    try:
        faulthandler.disable()  # readers may crash; do not log it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # readers print their errors
        os.dup2(nowhere, 2)
        os.nice(NICENESS)
        confine(READING_BYTES)
        answer = _FINE + read(data)
    except PayloadRefused as error:
        answer = _REFUSED + str(error).encode(errors="replace")
    except BaseException as error:  # a Rust panic is not an Exception
        answer = _FAILED + plain_message(error).encode(errors="replace")
    try:
        while answer:
            answer = answer[os.write(sending, answer) :]
    finally:
        os._exit(0)


def _receive(receiving: int, end: float) -> bytes | None:
    """Return everything the child writes; None if it does not finish in time."""
    parts: list[bytes] = []
    waiting = select.poll()  # unlike select, it takes descriptors above 1023
    waiting.register(receiving, select.POLLIN)
    while True:
        if not waiting.poll(1000 * max(0.0, end - time.monotonic())):
            return None
        part = os.read(receiving, 2**20)
        if not part:
            return b"".join(parts)
        parts.append(part)


MICRO = str.maketrans("µμ", "uu")
"""Both of Unicode's micro signs: left out, micrometres would read as metres."""


def plain_message(error: BaseException) -> str:
    """A vendor's message, shortened and without colours and frames."""
    text = re.sub(r"\x1b\[\d*m", "", str(getattr(error, "message", error)))
    text = text.translate(MICRO)
    words = "".join(c if c.isascii() and c.isprintable() else " " for c in text).split()
    return " ".join(words)[:MOST_MESSAGE] or type(error).__name__
