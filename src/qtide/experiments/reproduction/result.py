"""What an item of the reproduction found, on disk, and the rule by which it is judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qtide.core.files import write_whole
from qtide.twin.replications import MeanEstimate

NEAR = 0.10
"""Relative deviation up to which a value counts as reproduced."""
SPREADS = 2.0
"""Published standard deviations within which it counts, too."""
RULES = {
    "reproduced": "each published value is met within 10 % or within two of its published standard "
    "deviations (an overhead may also be smaller), and each statement of the paper holds here",
    "better": "reproduced, and each statement about elastic, which was not published, holds, too",
    "by the twin": "as reproduced, but nothing was measured: all numbers are of virtual time",
    "not reproduced": "a published value or a statement is missed; the item says which",
    "not run": "the item could not run on this computer; it says why",
}
"""What each verdict means."""


@dataclass(frozen=True)
class Value:
    """One number: published, measured here in several repetitions, and by the twin."""

    what: str
    unit: str
    measured: tuple[float, ...] = ()
    published: float | None = None
    spread: float | None = None
    """Published standard deviation."""
    twin: float | None = None
    runs: tuple[str, ...] = ()
    """Folders of the runs, relative to that of the reproduction."""
    is_cost: bool = False
    """Whether less than published is met as well."""

    @property
    def mean(self) -> MeanEstimate | None:
        """Mean of the measured values with its 95 % interval; None if nothing was measured."""
        return MeanEstimate.of(self.measured) if self.measured else None

    @property
    def ours(self) -> float | None:
        """What is compared with the published value: what was measured, or else the twin's."""
        return self.twin if self.mean is None else self.mean.mean

    @property
    def ratio(self) -> float | None:
        """Ours, in parts of the published value."""
        ours = self.ours
        return ours / self.published if ours is not None and self.published else None

    @property
    def is_met(self) -> bool:
        """Whether ours is near the published value; nothing published is nothing to miss."""
        ours = self.ours
        if self.published is None or ours is None:
            return self.published is None
        allowed = max(NEAR * self.published, SPREADS * (self.spread or 0.0))
        return ours - self.published <= allowed and (
            self.is_cost or self.published - ours <= allowed
        )


@dataclass(frozen=True)
class Statement:
    """A sentence that is true or false of what was measured."""

    words: str
    holds: bool


@dataclass(frozen=True)
class ItemResult:
    """A published table or figure, made again."""

    name: str
    title: str
    source: str
    values: tuple[Value, ...] = ()
    statements: tuple[Statement, ...] = ()
    """What the paper says."""
    advances: tuple[Statement, ...] = ()
    """What would be better than published."""
    notes: tuple[str, ...] = ()
    """What was scaled, and what differs."""
    seconds: float = 0.0
    virtual: bool = False
    """Whether what counts as measured was simulated in virtual time."""
    missing: str = ""
    """Why the item could not be made here; empty if it was."""

    @property
    def verdict(self) -> str:
        """The judgement by the rules."""
        if self.missing:
            return "not run"
        if not all(each.is_met for each in self.values):
            return "not reproduced"
        if not all(each.holds for each in self.statements):
            return "not reproduced"
        if self.virtual or not any(each.measured for each in self.values):
            return "by the twin"
        if self.advances and all(each.holds for each in self.advances):
            return "better"
        return "reproduced"

    @property
    def why(self) -> str:
        """One sentence behind the verdict."""
        if self.missing:
            return self.missing
        far = [each for each in self.values if not each.is_met]
        missed = [f"{each.what} is {each.ratio or 0:.2f} × the published value" for each in far]
        missed += [f"does not hold: {each.words}" for each in self.statements if not each.holds]
        if missed:
            return "; ".join(missed)
        of = sum(each.published is not None for each in self.values)
        values = f"all {of} published values are" if of > 1 else "the published value is"
        met = f"{values} met" if of else "nothing was published as a number"
        false = [f"does not hold: {each.words}" for each in self.advances if not each.holds]
        number = len(self.statements) + len(self.advances)
        holds = f"{number - len(false)} of {number} statements hold" if number else ""
        return "; ".join(filter(None, [met, holds, *false]))

    def as_dict(self) -> dict[str, Any]:
        """Return the result in a form that JSON can represent."""
        return asdict(self) | {"verdict": self.verdict, "why": self.why}

    @staticmethod
    def of(entry: dict[str, Any]) -> ItemResult:
        """Build from what `as_dict` returned."""
        known = {key: value for key, value in entry.items() if key not in ("verdict", "why")}
        values = [
            Value(**each | {"measured": tuple(each["measured"]), "runs": tuple(each["runs"])})
            for each in known.pop("values")
        ]
        statements, advances = (
            tuple(Statement(**each) for each in known.pop(name))
            for name in ("statements", "advances")
        )
        notes = tuple(known.pop("notes"))
        return ItemResult(
            **known, values=tuple(values), statements=statements, advances=advances, notes=notes
        )


def keep(folder: Path, found: ItemResult) -> None:
    """Write a result, which marks its item as done."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found.as_dict(), indent=1, ensure_ascii=False)
    write_whole(folder / f"{found.name}.json", f"{text}\n".encode())


def kept(folder: Path, name: str) -> ItemResult | None:
    """Read a result; None if the item is not done."""
    file = folder / f"{name}.json"
    return ItemResult.of(json.loads(file.read_text())) if file.exists() else None


PARTS = "items"
"""Folder of the results, one file each."""


@dataclass(frozen=True)
class Workplace:
    """Where an item keeps its runs, and how much time it may take."""

    folder: Path
    quick: bool = True

    @property
    def repetitions(self) -> int:
        """How often each case is run."""
        return 1 if self.quick else 5

    def known(self, name: str) -> ItemResult | None:
        """Return the result of another item, if there is one."""
        return kept(self.folder / PARTS, name)


def read_results(data: dict[str, Any]) -> Iterator[ItemResult]:
    """Return the results of a data file."""
    return map(ItemResult.of, data["items"])


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
