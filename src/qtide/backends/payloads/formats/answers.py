"""The formats of answers: sample sets, shots, estimates, and plain values for everything else."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_ANSWER, MOST_CIRCUITS
from qtide.backends.payloads.payload import PayloadRefused, is_of
from qtide.backends.payloads.shots import Estimates, Shots

Item = TypeVar("Item", Shots, Estimates)


class SamplesFormat:
    """Sample sets in dimod's own JSON, with the samples packed into bits."""

    def recognises(self, value: object) -> bool:
        """Whether the value is a `dimod.SampleSet`."""
        return is_of(value, "dimod", "SampleSet")

    def pack(self, samples: Any) -> bytes:
        """Encode a sample set in dimod's JSON."""
        return document.write(samples.to_serializable(), "the sample set")

    def unpack(self, data: bytes) -> Any:
        """Decode a `dimod.SampleSet`."""
        form = document.record(document.read(data, "the sample set", MOST_ANSWER), "the sample set")
        import dimod  # slow to import, and only clients and devices need it

        try:
            return dimod.SampleSet.from_serializable(form)
        except Exception as error:
            reason = document.brief(str(error) or type(error).__name__)
            raise PayloadRefused(f"the sample set cannot be read: {reason}") from None


class ListFormat(Generic[Item]):
    """A list with one answer per circuit or PUB, each with a JSON form of its own."""

    def __init__(self, kind: type[Item], noun: str) -> None:
        self._kind: type[Item] = kind
        self._noun = noun

    def recognises(self, value: Any) -> bool:
        """Whether the value is a non-empty list of such answers."""
        some = isinstance(value, list) and bool(value)
        return some and all(isinstance(one, self._kind) for one in value)

    def pack(self, answers: list[Item]) -> bytes:
        """Encode the answers as a list of their JSON forms."""
        return document.write([one.to_json() for one in answers], "the answer")

    def unpack(self, data: bytes) -> list[Item]:
        """Decode the answers."""
        forms = document.sequence(
            document.read(data, "the answer", MOST_ANSWER), "the answer", MOST_CIRCUITS
        )
        answers = []
        for number, form in enumerate(forms):
            where = f"circuit {number}"
            try:
                answers.append(self._kind.from_json(document.record(form, where)))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                document.refuse(where, f"these are not {self._noun}: {error}")
        return answers


class ValueFormat:
    """Plain JSON values, such as the answer that a burst carries."""

    def recognises(self, value: object) -> bool:
        """Return False: this format is used if no other recognises the answer."""
        return False

    def pack(self, value: Any) -> bytes:
        """Encode the value as JSON."""
        return document.write_exactly(value, "the answer")

    def unpack(self, data: bytes) -> Any:
        """Decode the value."""
        return document.read(data, "the answer", MOST_ANSWER)


samples = SamplesFormat()
shots = ListFormat(Shots, "shots")
estimates = ListFormat(Estimates, "estimates")
value = ValueFormat()
