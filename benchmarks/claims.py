"""Claims of a benchmark: a table for people, then one line of JSON for scripts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


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
