"""Notes: what a job decided and on which figures, beside the spans of its ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from qtide.ledger.ledger import Event

OWN = ("t", "job", "note", "lane", "why")


@dataclass(frozen=True, slots=True)
class Note:
    """Job `job` decided `what` about `lane`."""

    job: str
    what: str
    lane: str
    at: float
    figures: Mapping[str, float]
    why: str = ""
    """The reason, where it is no figure."""


def notes(events: Iterable[Event]) -> Iterator[Note]:
    """The notes among the events of a ledger."""
    for each in events:
        if "note" in each:
            figures = {name: value for name, value in each.items() if name not in OWN}
            what, why = each["note"], each.get("why", "")
            yield Note(each["job"], what, each["lane"], each["t"], figures, why)
