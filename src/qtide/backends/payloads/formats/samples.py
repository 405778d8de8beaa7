"""Sample sets as dimod itself writes them."""

from __future__ import annotations

from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_ANSWER
from qtide.backends.payloads.payload import PayloadRefused, is_of

WHAT = "the sample set"


def recognises(value: object) -> bool:
    """dimod's sample sets."""
    return is_of(value, "dimod", "SampleSet")


def pack(samples: Any) -> bytes:
    """As JSON, with the samples packed into bits."""
    return document.write(samples.to_serializable(), WHAT)


def unpack(data: bytes) -> Any:
    """The `dimod.SampleSet` again."""
    form = document.record(document.read(data, WHAT, MOST_ANSWER), WHAT)
    import dimod

    try:
        return dimod.SampleSet.from_serializable(form)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise PayloadRefused(f"{WHAT} cannot be read: {document.brief(reason)}") from None
