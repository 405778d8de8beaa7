"""Pulse sequences for neutral atoms, in Pulser's abstract representation.

A sequence with variables comes with its values: it runs once for each set of them. Pulser's reader
is not made for untrusted bytes, so `guard` reads them in a child process first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_CIRCUITS, guarded, plain_message
from qtide.backends.payloads.payload import PayloadRefused, is_of

WHAT = "the pulse sequences"
Values = dict[str, Any]
"""By variable, a number, or a list or an array of numbers."""


@dataclass(frozen=True)
class PulseProgram:
    """A `pulser.Sequence`, and for each of its runs the values of its variables."""

    sequence: Any
    values: tuple[Values, ...] = ({},)


@dataclass(frozen=True)
class PulseBatch:
    """Pulse programs that run one after another, as one task."""

    programs: tuple[PulseProgram, ...]

    @property
    def executions(self) -> int:
        """How many sequences are run."""
        return sum(len(program.values) for program in self.programs)


def recognises(value: Any) -> bool:
    """Whether the value is a batch, a program, a `pulser.Sequence`, or a list of these."""
    one = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(one, PulseBatch | PulseProgram) or is_of(one, "pulser", "Sequence")


def pack(value: Any) -> bytes:
    """Encode the sequences as Pulser's JSON, each with its values."""
    forms = []
    for program in batch_of(value).programs:
        text = program.sequence.to_abstract_repr()
        forms.append({"sequence": json.loads(text), "values": _plain(program.values)})
    return document.write(forms, WHAT)


def _plain(value: Any) -> Any:
    """Values without NumPy's types, which JSON does not know."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def batch_of(value: Any) -> PulseBatch:
    """The value as a batch: sequences without values have no variables."""
    if isinstance(value, PulseBatch):
        return value
    given = value if isinstance(value, list | tuple) else [value]
    programs = (each if isinstance(each, PulseProgram) else PulseProgram(each) for each in given)
    return PulseBatch(tuple(programs))


def unpack(data: bytes) -> PulseBatch:
    """Decode a batch from untrusted bytes."""
    forms = document.sequence(document.read(data, WHAT), WHAT, MOST_CIRCUITS)
    if not forms:
        document.refuse(WHAT, "there is none")
    for number, value in enumerate(forms):
        where = f"sequence {number}"
        form = document.record(value, where)
        document.record(form.get("sequence"), where)
        for each in document.sequence(form.get("values", [{}]), f"{where}, values", MOST_CIRCUITS):
            _check_values(each, f"{where}, values")
    import pulser  # noqa: F401 - otherwise every child process would import it again

    return unpack_trusted(guarded(_checked, data, WHAT))


def unpack_trusted(data: bytes) -> PulseBatch:
    """Decode a batch from bytes that `pack` wrote."""
    from pulser import Sequence

    programs = []
    for number, form in enumerate(json.loads(data)):
        try:
            sequence = Sequence.from_abstract_repr(json.dumps(form["sequence"]))
        except Exception as error:
            raise PayloadRefused(
                f"sequence {number} is not one of Pulser's: {plain_message(error)}"
            ) from None
        programs.append(PulseProgram(sequence, tuple(form.get("values", [{}]))))
    return PulseBatch(tuple(programs))


def _checked(data: bytes) -> bytes:
    return pack(unpack_trusted(data))


def _check_values(value: Any, where: str) -> None:
    for name, given in document.record(value, where).items():
        for each in given if isinstance(given, list) else [given]:
            document.number(each, f"{where}, {document.brief(name)}")
