"""qtide show: where a run stands."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.clusters.kind import CLUSTERS
from qtide.errors import QtideError
from qtide.jobs.job import Job
from qtide.ledger.ledger import Interval, Ledger
from qtide.ledger.metrics import Metrics, measure
from qtide.report.decisions import COSTS, decisions
from qtide.runs.aftermath import settle
from qtide.runs.folder import RunFolder
from qtide.runs.presence import where

SHOWN = 10
"""How many decisions are shown."""


def show(
    run: options.Run,
    runs: options.Runs = options.RUNS,
    as_document: options.Json = False,
) -> None:
    """Show a run: its state, its driver, what it is doing, and what it has held.

    Example: qtide show last
    """
    found = describe(RunFolder.find(runs, run))
    if as_document:
        as_json(found)
        return
    kind = found["spec"]["cluster"].partition(":")[0]
    for name, value in found.items():
        if value and name not in ("spec", "metrics", "decisions", "lower bounds", kind):
            out.print(f"{name}: {_words(name, value)}", markup=False, highlight=False)
    figures = _node_seconds(found["metrics"], found["lower bounds"])
    out.print(figures, markup=False, highlight=False)
    for line in (*_account_lines(kind, found.get(kind, {})), *_decision_lines(found["decisions"])):
        out.print(line, markup=False, highlight=False)


def _node_seconds(metrics: dict[str, Any], unknown: Sequence[str]) -> str:
    """What nodes did; of a driver that was killed, nobody may know how long."""
    figures = [
        f"{name} {'at least ' if name in unknown else ''}{metrics[f'nodes_{name}']:,.1f}"
        for name in ("held", "starting", "busy")
    ]
    return f"node-seconds: {', '.join(figures)}"


def _words(name: str, value: Any) -> str:
    """A value for people: a driver, an end, or a list of current activities."""
    if name == "phases":
        return f"{value:,} finished"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and "pid" in value:
        return where(value)
    if isinstance(value, dict):
        return json.dumps(value["value"]) if "value" in value else str(value.get("error"))
    return str(value)


def describe(run: RunFolder) -> dict[str, Any]:
    """Everything that its folder says."""
    settle(run)
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
    return found | _interruption(run, state) | _accounts(run, metrics, _given_back(spans))


def _unknown(spans: Iterable[Interval]) -> list[str]:
    """What a driver that was killed did for at least as long as is known."""
    return sorted({span.what for span in spans if span.open_ended})


def _given_back(spans: Iterable[Interval]) -> set[int]:
    """The jobs of the cluster that the run has given back: their numbers are the labels."""
    held = [span for span in spans if span.what == "held" and span.label.isdecimal()]
    return {int(span.label) for span in held if not span.open_ended}


def _decisions(run: RunFolder, began: float) -> list[dict[str, Any]]:
    """What its strategy did with idle nodes, and why."""
    return [{"at": each.at - began, "text": each.text} for each in decisions(run.notes())]


def _decision_lines(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return []
    earlier = f", and {len(found) - SHOWN:,} earlier ones (--json)" if len(found) > SHOWN else ""
    lines = [f"{each['at']:10,.1f} s  {each['text']}" for each in found[-SHOWN:]]
    return [f"what was decided about idle nodes, and why{earlier}:", *lines, COSTS]


def _interruption(run: RunFolder, state: str) -> dict[str, str]:
    """What became of a driver that ended without a message, as far as is known here."""
    driver = run.presence.driver
    if state != "interrupted" or driver is None:
        return {}
    return {
        "interruption": f"its driver ({where(driver)}) is gone: interrupted, killed, or lost with "
        f"its host{_slurm_state(driver['slurm_job'])}; finished phases are kept; resume with: "
        f"qtide resume {run.name}"
    }


def _slurm_state(job: str | None) -> str:
    """Slurm's state of a driver that is a Slurm job; empty if Slurm does not answer."""
    state = CLUSTERS.load("slurm").driver_state(job) if job else None
    return f" (Slurm's state of its job: {state})" if state else ""


def _accounts(run: RunFolder, metrics: Metrics, ended: set[int]) -> dict[str, Any]:
    """What a cluster charges for a run, and what the run held; or why it is unknown."""
    kind = run.spec.cluster.partition(":")[0]
    job = Job(run.name, Ledger(run.name, time.time), run.values)
    try:
        scale, since = run.spec.time_scale, run.created
        found = CLUSTERS.load(kind).accounts(job, metrics, scale, since, ended)
    except QtideError as error:
        return {kind: {"error": str(error)}}
    return {kind: found} if found else {}


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _account_lines(kind: str, found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [f"{kind.capitalize()}'s accounting is not available: {found['error']}"]
    lines = [
        f"{name}, by the real clock: held {each['held']:,.1f} s (ledger), charged "
        f"{each['charged']:,.0f} s ({each['source']}, {_jobs(each['jobs'])}), "
        f"difference {each['difference']:+,.1f} s"
        for name, each in found.items()
    ]
    missing = max((each.get("missing", 0) for each in found.values()), default=0)
    if missing:
        lines.append(
            f"{kind.capitalize()}'s records are not complete yet: {missing} of the run's jobs have "
            "ended, but their ends are not recorded; ask again later"
        )
    return lines
