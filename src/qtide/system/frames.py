"""Frames between a process and its children: a JSON header and a body of bytes."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

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
