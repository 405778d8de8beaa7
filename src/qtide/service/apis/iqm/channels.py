"""Channel properties in the format of IQM's clients, which is protobuf.

Clients derive from them which qubits may control each other. Ours all may, if the device has
conditional gates at all; so each qubit has one channel, and all of them have the same source.
"""

from __future__ import annotations

import struct
from typing import Any

MAPPING, KEY, VALUE, AWG, CHANNEL, SAMPLING_RATE, SOURCES = 1, 1, 2, 1, 1, 1, 3
"""Numbers of the fields: each message is one within another."""
BYTES, DOUBLE = 2, 1
"""How the value of a field is written."""
CONDITIONAL = "cc_prx"


def channel_properties(properties: dict[str, Any]) -> bytes:
    """One channel per qubit, with the source of its feedback."""
    sources = ["feedback"] if CONDITIONAL in properties["operations"] else []
    return b"".join(_channel(qubit, sources) for qubit in properties["qubits"])


def _channel(qubit: str, sources: list[str]) -> bytes:
    rate = _tag(SAMPLING_RATE, DOUBLE) + struct.pack("<d", 1.0)
    feedback = b"".join(_field(SOURCES, each.encode()) for each in sources)
    entry = _field(AWG, _field(CHANNEL, rate) + feedback)
    name = f"{qubit}__drive.awg".encode()
    return _field(MAPPING, _field(KEY, name) + _field(VALUE, entry))


def _field(number: int, data: bytes) -> bytes:
    return _tag(number, BYTES) + _varint(len(data)) + data


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; all but the last are marked."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
