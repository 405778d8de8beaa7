"""The answers to a batch of circuits: one `Shots` per circuit."""

from __future__ import annotations

from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_ANSWER, MOST_CIRCUITS
from qtide.backends.payloads.shots import Shots


def recognises(value: Any) -> bool:
    """A list of shots, one for each circuit."""
    some = isinstance(value, list) and bool(value)
    return some and all(isinstance(one, Shots) for one in value)


def pack(answers: list[Shots]) -> bytes:
    """As a list of their JSON forms."""
    return document.write([shots.to_json() for shots in answers], "the answer")


def unpack(data: bytes) -> list[Shots]:
    """The answers again."""
    forms = document.sequence(
        document.read(data, "the answer", MOST_ANSWER), "the answer", MOST_CIRCUITS
    )
    return [_shots(form, f"circuit {number}") for number, form in enumerate(forms)]


def _shots(form: object, where: str) -> Shots:
    try:
        return Shots.from_json(document.record(form, where))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        return document.refuse(where, f"these are not shots: {error}")
