"""Formats: how payloads and answers travel between processes, as a name and bytes.

The service in front of the devices looks at no payload and imports no vendor's SDK; so neither
does this package until a parcel of that vendor is met.
"""

from qtide.qpus.formats.parcel import (
    AnswerUnreadable,
    Parcel,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
)

__all__ = ["AnswerUnreadable", "Parcel", "pack", "pack_answer", "unpack", "unpack_answer"]
