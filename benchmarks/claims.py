"""Claims of a benchmark: a table for people, then one line of JSON for scripts."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Claim:
    """Something measured against its goal."""

    what: str
    value: float
    goal: str
    ok: bool


def at_most(what: str, value: float, limit: float) -> Claim:
    """A claim that holds up to the limit."""
    return Claim(what, value, f"<= {limit:g}", value <= limit)


def at_least(what: str, value: float, limit: float) -> Claim:
    """A claim that holds from the limit on."""
    return Claim(what, value, f">= {limit:g}", value >= limit)


class Parts:
    """A long measurement in parts: results of cases are kept in a file, one JSON line each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._file: Path | None = options.results
        self._end: float = time.monotonic() + 60 * options.minutes
        lines = self._file.read_text().splitlines() if self._file and self._file.exists() else []
        self.known: dict[int, Any] = dict(json.loads(line) for line in lines)
        """The results so far, by the number of the case."""

    @staticmethod
    def options(parser: argparse.ArgumentParser) -> None:
        """Add the options that measure a part."""
        parser.add_argument("--results", type=Path, help="keep results here, and add what lacks")
        parser.add_argument("--minutes", type=float, default=inf, help="begin no case after that")

    @property
    def over(self) -> bool:
        """Whether the time for this part is over."""
        return time.monotonic() > self._end

    def add(self, number: int, result: Any) -> None:
        """Keep the result of a case."""
        self.known[number] = result
        if self._file:
            with self._file.open("a") as file:
                print(json.dumps([number, result]), file=file)


def conclude(benchmark: str, claims: list[Claim]) -> None:
    """Print the claims and, last, the line of JSON."""
    width = max(len(claim.what) for claim in claims)
    print(f"\n{'claim':{width}}  {'measured':>12}  {'goal':>12}")
    for claim in claims:
        verdict = "ok" if claim.ok else "NOT REACHED"
        print(f"{claim.what:{width}}  {claim.value:12.5g}  {claim.goal:>12}  {verdict}")
    print()
    lines = [asdict(claim) | {"value": float(f"{claim.value:.5g}")} for claim in claims]
    print(json.dumps({"benchmark": benchmark, "claims": lines}))
