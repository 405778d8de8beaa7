"""Describes decisions: nodes kept or released over a gap, and tasks run in place of the QPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from qtide.core.ledger import Note
from qtide.interfaces.report.table import brief

COSTS = (
    "Costs are in seconds of the job, each worth what --time-weight says, and node-seconds, each "
    "worth the rest."
)

CHOICES = {
    "chose the qpu": "took the QPU for",
    "chose the task": "ran the classical equivalent of",
}
"""Wording of how a phase with a classical equivalent was run."""

MPI = "mpi"
"""Strategy name of MPI programs, which change their size themselves."""

PARTS = ("grant", "start", "connect", "move")
"""Parts of a size change of an MPI program."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision as a sentence, and its time."""

    at: float
    text: str


def decisions(notes: Iterable[Note]) -> Iterator[Decision]:
    """Yield decisions in order; merge equal ones of the same moment into one sentence."""
    for (at, what, _), same in groupby(notes, key=_alike):
        yield Decision(at, _sentence(what, list(same)))


def headline(strategy: str) -> str:
    """Return the heading of the decisions."""
    if strategy == MPI:
        return "how the number of nodes changed, and how long each part took"
    return "what was decided, and why"


def remarks(found: Iterable[str]) -> list[str]:
    """Return explanations that a reader of these sentences needs."""
    return [COSTS] if any(" costs " in each for each in found) else []


def _alike(note: Note) -> tuple[float, str, float | str | None]:
    return note.at, note.what, note.why or note.figures.get("missing")


def _sentence(what: str, same: Sequence[Note]) -> str:
    figures = same[0].figures
    if what in CHOICES:
        keys = ", ".join(each.lane.removeprefix("phase/") for each in same)
        return f"{CHOICES[what]} phase {keys}: {same[0].why}"
    if what in ("grew", "shrank", "lost nodes"):
        return _change(what, figures)
    if what == "asked ahead":
        ahead, gap = _seconds(figures["ahead"]), _seconds(figures["gap"])
        return f"asked for {_count(figures['nodes'])} {ahead} ahead, needed in {gap}"
    names = ", ".join(each.lane.removeprefix("node/") for each in same)
    costs = f"to keep one costs {brief(figures['idling'])}{_price(figures)}, {_others(figures)}"
    return f"{what} {names}, with a gap of {_seconds(figures['gap'])} ahead: {costs}"


def _change(what: str, figures: Mapping[str, float]) -> str:
    """Describe a size change of an MPI program, with the duration of each part if it is known."""
    if what == "lost nodes":
        return f"lost {_count(figures['lost'])}, and went on with {_count(figures['nodes'])}"
    parts = [f"{name} {_seconds(figures[name])}" for name in PARTS if name in figures]
    sizes = f"from {_count(figures['before'])} to {_count(figures['after'])}"
    return f"{what} {sizes}: {', '.join(parts)}" if parts else f"{what} {sizes}"


def _others(figures: Mapping[str, float]) -> str:
    again = (
        f"to get it again {brief(figures['returning'])} ({_seconds(figures['wait'])} in the queue, "
        f"{_seconds(figures['start'])} to start)"
    )
    if "missing" not in figures:
        return again
    return f"{again}, to do without it {brief(figures['missing'])}"


def _price(figures: Mapping[str, float]) -> str:
    return ", as other jobs wait for nodes" if figures["price"] else ""


def _count(nodes: float) -> str:
    return "1 node" if nodes == 1 else f"{nodes:g} nodes"


def _seconds(value: float) -> str:
    return f"{brief(value)} s"
