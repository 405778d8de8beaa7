"""The work itself: reading large requests and writing large answers.

It runs in the service if it is small, otherwise in a process with little memory and little time.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any

from qtide.payloads.encoded import Encoded, decode_answer
from qtide.payloads.limits import MOST_CIRCUITS
from qtide.payloads.payload import PayloadRefused

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
    from qtide.service.apis.iqm.measurements import measurements as written

    return {}, written(decode_answer(Encoded("shots", answer))).encode()


def measurement_counts(answer: bytes) -> Done:
    """An answer in the format of IQM's clients: how often what was measured."""
    from qtide.service.apis.iqm.measurements import measurement_counts as counted

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
