"""Comparisons: one program under several strategies, as one job or several concurrent ones."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path
from typing import Any

from qtide.core.errors import QtideError, UsageError
from qtide.core.metrics import Panel, measure
from qtide.runs.driver import ALIKE, GroupTerms, Outcome, Tell, play_groups, sentence
from qtide.runs.earlier import hand_on, precedent_notes, with_precedent
from qtide.runs.folder import WARM_UP, Call, RunFolder, check_name, created, open_ended, stamp
from qtide.runs.open_site import is_virtual
from qtide.runs.spec import Spec
from qtide.runs.start import check

UNREST = 1.2
"""Tolerated ratio of busy node time between strategies for the same work."""


@dataclass(frozen=True)
class Case:
    """One strategy with a number of concurrent jobs, and their runs."""

    strategy: str
    jobs: int
    runs: tuple[RunFolder, ...]

    def panel(self) -> Panel:
        """Combined metrics of the case's jobs, from their ledgers."""
        spans = [span for run in self.runs for span in run.intervals()]
        names = tuple(run.name for run in self.runs)
        notes = tuple(note for run in self.runs for note in run.notes())
        return Panel(self.strategy, names, spans, measure(spans), notes)

    def as_dict(self) -> dict[str, Any]:
        """The case's figures, for JSON."""
        figures = self.panel().metrics.as_dict()
        return figures | {"strategy": self.strategy, "jobs": self.jobs}


def compare(
    folder: Path,
    spec: Spec,
    strategies: Sequence[str],
    jobs: Sequence[int],
    tell: Tell,
    ended: Callable[[Case], None] = lambda _: None,
    *,
    warm_up: bool = False,
    call: Call | None = None,
    terms: GroupTerms = ALIKE,
) -> list[Case]:
    """Run all cases one after another; all must give the same result.

    A warm-up first runs the program once, and each of its functions on every node, so that no case
    includes the first use of a library and all begin with the same knowledge. `call` is a call
    made from Python; without it, the description says what to call. `terms` say how the jobs of a
    case differ.
    """
    cases = [
        _create(folder, replace(spec, strategy=strategy), number, call)
        for number in jobs
        for strategy in strategies
    ]
    first = spec if warm_up else None
    return play_cases(folder, cases, tell, ended, warm_up=first, call=call, terms=terms)


def play_cases(
    folder: Path,
    cases: list[Case],
    tell: Tell,
    ended: Callable[[Case], None] = lambda _: None,
    *,
    warm_up: Spec | None = None,
    call: Call | None = None,
    terms: GroupTerms = ALIKE,
) -> list[Case]:
    """Run existing cases, after a warm-up if one is given; all must give the same result."""
    first = _create_warm_up(folder, warm_up, call) if warm_up else None

    def check(outcomes: list[Outcome]) -> None:
        _refuse_failure(outcomes)
        if outcomes[0].run.path.parent.name == WARM_UP:
            hand_on(outcomes[0].run, [run for case in cases for run in case.runs])
        for case in cases:
            if outcomes[0].run in case.runs:
                ended(case)

    play_groups([case.runs for case in cases], tell, check, first, terms)
    _agree(cases)
    return cases


def read_cases(folder: Path) -> list[Case]:
    """Read the cases of an earlier comparison or of a single run."""
    found: dict[tuple[int, str], list[RunFolder]] = defaultdict(list)
    for run in sorted(RunFolder.all(folder), key=lambda each: (each.created, each.name)):
        if run.is_warm_up or run.damage is not None:
            continue
        found[_siblings(run), run.spec.strategy].append(run)
    return [Case(strategy, jobs, tuple(runs)) for (jobs, strategy), runs in found.items()]


def damages(folder: Path) -> list[str]:
    """One message per run that is left out because it cannot be read."""
    return [text for run in RunFolder.all(folder) if (text := run.damage) is not None]


def notes(cases: Sequence[Case]) -> list[str]:
    """Notes a reader needs to interpret the figures."""
    spec = cases[0].runs[0].spec
    shares = " or ".join(str(n) for n in sorted({case.runs[0].spec.vqpus for case in cases}))
    lines = [f"Cluster {spec.cluster}, QPU {spec.qpu}, vQPUs {shares}, seed {spec.seed}."]
    if spec.cluster.startswith("simulated"):
        lines.append(
            "Virtual time, without real waits; the strategies' own code made the decisions."
        )
        lines += precedent_notes([run for case in cases for run in case.runs])
    elif spec.time_scale != 1:
        lines.append(f"The clock was scaled: one second here took {spec.time_scale:g} s.")
    if spec.cluster.startswith("local"):
        lines += _unrest(cases)
    return lines + [text for case in cases for run in case.runs if (text := open_ended(run))]


def verdicts(cases: Sequence[Case]) -> list[str]:
    """For each number of jobs: the cheapest strategy, and at which weights another one is."""
    groups: dict[int, dict[str, tuple[float, float]]] = defaultdict(dict)
    unit = "node-seconds"
    for case in cases:
        metrics = case.panel().metrics
        groups[case.jobs][case.strategy] = metrics.mean_wall, metrics.charged / case.jobs
        if metrics.node_rate:
            unit = "node-seconds, as the site charges them,"
    return [_verdict(jobs, found, unit) for jobs, found in groups.items() if len(found) > 1]


def _verdict(jobs: int, found: dict[str, tuple[float, float]], unit: str = "node-seconds") -> str:
    """Name the best strategy; costs are linear in the time weight, so it changes at crossings."""

    def cost(name: str, weight: float) -> float:
        wall, nodes = found[name]
        return weight * wall + (1 - weight) * nodes

    best = min(found, key=lambda name: cost(name, 0.5))
    equal = [name for name in found if all(map(isclose, found[name], found[best]))]
    flips = []
    for name in found:
        gain = cost(best, 0.0) - cost(name, 0.0), cost(best, 1.0) - cost(name, 1.0)
        if gain[0] * gain[1] < 0:  # better at one end, worse at the other
            weight = gain[0] / (gain[0] - gain[1])
            if 0.005 < weight < 0.995:  # what shows as 0.00 or 1.00 is no other weight
                flips.append((weight, name, "above" if gain[1] > 0 else "below"))
    above = min((each for each in flips if each[2] == "above"), default=None)
    below = max((each for each in flips if each[2] == "below"), default=None)
    turns = [
        f"{side} {weight:.2f}, {name} would" for weight, name, side in filter(None, (below, above))
    ]
    wall, nodes = found[best]
    who = " and ".join(filter(None, (", ".join(equal[:-1]), equal[-1])))
    cheapest, same = ("cost", "they do") if len(equal) > 1 else ("costs", "it does")
    return (
        f"{'1 job' if jobs == 1 else f'{jobs} jobs'}: {who} {cheapest} least if a second of a job "
        f"counts as much as a node-second (time weight 0.5), with {wall:,.1f} s and {nodes:,.1f} "
        f"{unit} per job; {'; '.join(turns) or f'so {same} at every other weight'}."
    )


def _unrest(cases: Sequence[Case]) -> list[str]:
    """Warn if the same work took much longer under one strategy than under another."""
    groups: dict[int, list[float]] = defaultdict(list)
    for case in cases:
        groups[case.jobs].append(case.panel().metrics.nodes_busy)
    least, most = max(
        ((min(busy), max(busy)) for busy in groups.values()), key=lambda pair: pair[1] - pair[0]
    )
    if most <= UNREST * least:
        return []
    return [
        f"The same work took {least:,.1f} to {most:,.1f} node-seconds: this machine did other "
        "things as well, or has too few cores for its nodes; smaller differences mean nothing. "
        "--cluster simulated compares without such noise."
    ]


def _create_warm_up(folder: Path, spec: Spec, call: Call | None) -> RunFolder:
    return created(folder / WARM_UP, "run", replace(spec, strategy="static"), call)


def _create(folder: Path, spec: Spec, jobs: int, call: Call | None) -> Case:
    spec = replace(spec, vqpus=max(spec.vqpus, jobs))
    root = folder / f"{jobs}-jobs" / spec.strategy
    runs = (created(root, f"job-{n}", spec, call) for n in range(1, jobs + 1))
    return Case(spec.strategy, jobs, tuple(runs))


def _refuse_failure(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            name = "the warm-up" if outcome.run.is_warm_up else outcome.run.spec.strategy
            raise QtideError(f"{name} failed: {sentence(outcome.error)}")


def _agree(cases: Sequence[Case]) -> None:
    ends = {json.dumps((run.end or {}).get("value")) for case in cases for run in case.runs}
    if len(ends) > 1:
        raise QtideError(
            f"the strategies gave {len(ends)} different results: between its phases the program "
            "depends on something other than its arguments and its seed"
        )


def was_alone(run: RunFolder) -> bool:
    """Whether no other job of a comparison ran at the same time."""
    return _siblings(run) == 1


def _siblings(run: RunFolder) -> int:
    """Number of jobs that ran together: in a comparison, their folders share a parent."""
    return max(1, sum(1 for _ in run.path.parent.glob("job-*/run.json")))


@dataclass(frozen=True)
class ComparisonPlan:
    """A program to run under several strategies and numbers of concurrent jobs."""

    spec: Spec
    strategies: tuple[str, ...]
    jobs: tuple[int, ...]
    call: Call | None = None
    warm_up: bool = field(default=True, kw_only=True)

    def __len__(self) -> int:
        return len(self.strategies) * len(self.jobs)

    @property
    def warms_up(self) -> bool:
        """Whether to warm up; virtual time needs no warm-up."""
        return self.warm_up and not is_virtual(self.spec)

    def folder(self, runs: Path, name: str = "") -> Path:
        """Check everything and return the folder for the runs."""
        if self.spec.options.get("engine"):
            raise UsageError("a comparison is of qtide's own strategies; leave --engine out")
        title = check(self.spec, self.call)
        for number in self.jobs:
            if number < 1:
                raise UsageError(f"--jobs has to be at least 1, not {number}")
        check_name(name)
        folder = runs / (name or f"compare-{title}-{stamp()}")
        if folder.exists():
            raise UsageError(f"{folder} exists already; choose another --name")
        return folder

    def run(
        self, folder: Path, tell: Tell, ended: Callable[[Case], None] = lambda _: None
    ) -> list[Case]:
        """Run all cases one after another."""
        spec, warm = with_precedent(self.spec, folder.parent), self.warms_up
        many = (self.strategies, self.jobs, tell, ended)
        return compare(folder, spec, *many, warm_up=warm, call=self.call)
