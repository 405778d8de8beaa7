"""What became of a run, phase by phase: when, on what, and with which result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from qtide.errors import PhaseError
from qtide.jobs.values import Packed
from qtide.ledger.ledger import Interval
from qtide.payloads.encoded import encode_answer
from qtide.programs.choice import choice_of
from qtide.programs.journal import Record, records
from qtide.runs.driver import plain
from qtide.runs.folder import RunFolder
from qtide.runs.site import is_virtual

UNKNOWN = "the result cannot be read outside of the program"


@dataclass(frozen=True)
class Execution:
    """One try of a phase; a driver that was killed leaves one that did not end."""

    number: int
    key: str
    span: Interval
    busy: Sequence[Interval] = ()
    record: Record | None = None
    why: str = ""
    """Why this and not its equivalent was run, if there was a choice."""

    @property
    def failed(self) -> bool:
        """Whether it gave no result."""
        return self.span.open_ended or self.record is None or self.record.failed

    @property
    def quantum(self) -> bool:
        """Whether it ran on a QPU."""
        return self.span.lane == "quantum"

    def seconds(self, lanes: str) -> float:
        """How long nodes, or devices, worked for it."""
        return sum(each.seconds for each in self.busy if each.lane.startswith(lanes))

    @property
    def lanes(self) -> list[str]:
        """The nodes and devices that worked for it."""
        return sorted({each.lane for each in self.busy})


@dataclass
class History:
    """Reads a run's folder."""

    run: RunFolder
    spans: list[Interval] = field(init=False)

    def __post_init__(self) -> None:
        """Read the ledger and the journal once."""
        self.spans = self.run.intervals()
        self._records = records(self.run.journal)
        self._scale = self.run.spec.time_scale
        self.is_virtual = is_virtual(self.run.spec)

    def moment(self, clock: float) -> str:
        """A time of the run's clock by the calendar; virtual time begins when it was created."""
        seconds = self.run.created + clock if self.is_virtual else clock * self._scale
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

    def executions(self) -> Iterator[Execution]:
        """All tries of phases, in the order in which they began."""
        phases = sorted((each for each in self.spans if each.what == "phase"), key=_began)
        last = {span.key or str(number): number for number, span in enumerate(phases, 1)}
        for number, span in enumerate(phases, 1):
            key = span.key or str(number)  # the ledgers of older runs have no keys
            record = self._records.get(key) if last[key] == number else None
            yield Execution(number, key, span, self._busy(span), record, self._why(key))

    def result(self, execution: Execution) -> Any:
        """What a phase gave, in a form that JSON can represent."""
        if execution.record is None:
            return None
        try:
            return _readable(self.run.values.unpack(Packed.from_json(execution.record.outcome)))
        except Exception:  # the program, or a package of it, may be gone
            return UNKNOWN

    def _why(self, key: str) -> str:
        choice = self._records.get(choice_of(key))
        return "" if choice is None else str(choice.outcome["why"])

    def _busy(self, phase: Interval) -> list[Interval]:
        """What worked during a phase, and bears a name that the phase has."""
        names = set(phase.label.replace(" instead of ", " + ").split(" + "))
        names |= {name.partition(" × ")[2] for name in names}
        lanes = "qpu/" if phase.lane == "quantum" else "node/"
        within = (each for each in self.spans if phase.start <= _middle(each) <= phase.end)
        return [
            each
            for each in within
            if each.what == "busy" and each.lane.startswith(lanes) and each.label in names
        ]


def _readable(value: Any) -> Any:
    """In a form that JSON can represent: the answers of devices as the service sends them."""
    with suppress(PhaseError, ValueError):  # it is no such answer
        return json.loads(encode_answer(value).data)
    return [_readable(each) for each in value] if isinstance(value, list) else plain(value)


def _middle(span: Interval) -> float:
    """What ends as the next thing begins belongs to one of them; clocks may differ a little."""
    return (span.start + span.end) / 2


def _began(span: Interval) -> float:
    return span.start
