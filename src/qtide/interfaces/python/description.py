"""Describes a run: everything that its folder and its cluster know about it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtide.core.errors import QtideError, UsageError
from qtide.core.ledger import Interval, Ledger
from qtide.core.metrics import Metrics, Panel, measure
from qtide.interfaces.report.decisions import decisions
from qtide.runs.folder import RunFolder, close_open_spans, unique
from qtide.runs.presence import where

if TYPE_CHECKING:  # to show a run takes less without
    from qtide.interfaces.report.run_report import Report
    from qtide.runs.comparison import Case


def describe(run: RunFolder) -> dict[str, Any]:
    """Return everything known about a run."""
    close_open_spans(run)
    spans, state = run.intervals(), run.state
    metrics = measure(spans)
    going_on = [span for span in spans if span.open_ended and state == "running"]
    found = {
        "run": run.name,
        "folder": str(run.path),
        "state": state,
        "driver": run.presence.driver,
        "damage": run.presence.damage,
        "phases": run.finished_phases,
        "now": [span.label for span in going_on if span.what == "phase"],
        "waits for": [span.label for span in going_on if span.what == "wait"],
        "end": run.end,
        "metrics": metrics.as_dict(),
        "lower bounds": [] if state == "running" else _unknown(spans),
        "decisions": _decisions(run, min((span.start for span in spans), default=0.0)),
        "spec": asdict(run.spec),
    }
    return found | _interruption(run, state) | _accounts(run, metrics, spans)


def _unknown(spans: Iterable[Interval]) -> list[str]:
    """Kinds of spans that are lower bounds: the driver was killed, so their end is unknown."""
    return sorted({span.what for span in spans if span.open_ended})


def _given_back(spans: Iterable[Interval]) -> set[int]:
    """Numbers of the cluster jobs that the run has released, from the labels of its spans."""
    held = [span for span in spans if span.what == "held" and span.label.isdecimal()]
    return {int(span.label) for span in held if not span.open_ended}


def _decisions(run: RunFolder, began: float) -> list[dict[str, Any]]:
    """Return the strategy's decisions and their reasons."""
    return [{"at": each.at - began, "text": each.text} for each in decisions(run.notes())]


def _interruption(run: RunFolder, state: str) -> dict[str, str]:
    """Describe a driver that ended without a message."""
    driver = run.presence.driver
    if state != "interrupted" or driver is None:
        return {}
    return {
        "interruption": f"its driver ({where(driver)}) is gone: interrupted, killed, or lost with "
        f"its host{_site_state(driver)}; finished phases are kept; resume with: "
        f"qtide resume {run.name}"
    }


def _site_state(driver: dict[str, Any]) -> str:
    """Return the cluster's state of a driver that is its job; empty if it does not answer."""
    from qtide.backends.clusters.kind import CLUSTERS

    name = driver["cluster"]
    state = CLUSTERS.load(name).driver_state(driver["job"]) if name else None
    return f" ({name.capitalize()}'s state of its job: {state})" if state else ""


def _accounts(run: RunFolder, metrics: Metrics, spans: Sequence[Interval]) -> dict[str, Any]:
    """Return what the cluster charges for a run and what the run held, or why it is unknown."""
    if not any(span.what == "held" and span.label.isdecimal() for span in spans):
        return {}  # it had no job of a cluster
    from qtide.backends.clusters.kind import CLUSTERS
    from qtide.core.job import JobContext
    from qtide.core.values import Values

    ended = _given_back(spans)
    kind = run.spec.cluster.partition(":")[0]
    job = JobContext(run.name, Ledger(run.name, time.time), Values(run.path / "values"))
    try:
        scale, since = run.spec.time_scale, run.created
        found = CLUSTERS.load(kind).accounts(job, metrics, scale, since, ended)
    except QtideError as error:
        return {kind: {"error": str(error)}}
    return {kind: found} if found else {}


def write_report(folder: Path) -> Report:
    """Write report.html and the timelines (PNG, SVG) into the folder."""
    from qtide.runs.comparison import read_cases

    for each in RunFolder.all(folder):
        close_open_spans(each)
    cases = read_cases(folder)
    if not any(case.panel().intervals for case in cases):
        raise UsageError(f"{folder} has no ledger yet; run it first")
    return comparison_report(folder, cases)


def comparison_report(folder: Path, cases: Sequence[Case]) -> Report:
    """Write the page and the pictures of a comparison."""
    from qtide.interfaces.report.run_report import Group, write_report  # matplotlib is heavy
    from qtide.runs.comparison import notes, verdicts

    groups: dict[int, list[Panel]] = defaultdict(list)
    for case in cases:
        groups[case.jobs].append(case.panel())
    spec = cases[0].runs[0].spec
    title = f"{Path(spec.program).name} {' '.join(spec.words)}".strip()
    made = [Group(jobs, tuple(panels)) for jobs, panels in groups.items()]
    return write_report(folder, title, made, [*notes(cases), *verdicts(cases)])


def summary_line(case: Case) -> str:
    """Summarise a finished case in a line."""
    metrics = case.panel().metrics
    figures = f"{metrics.total:,.1f} s, {metrics.nodes_held:,.1f} node-s"
    jobs = "1 job" if case.jobs == 1 else f"{case.jobs} jobs"
    return f"{case.strategy}, {jobs}: {figures}"


def reported(name: str, runs: Path) -> Path:
    """Return the folder of the run or comparison with that name or prefix."""
    for path in (runs / name, Path(name)):
        if name != "last" and path.is_dir() and any(path.rglob("run.json")):
            return path
    if name == "last":
        found = RunFolder.find(runs, name).path
        return runs / found.relative_to(runs).parts[0]
    names = RunFolder.names(runs)
    folders = {each.partition("/")[0] for each in names}
    return runs / unique(name, names if "/" in name else sorted(folders), "run", f"in {runs}")
