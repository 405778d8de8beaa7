"""qtide show: where a run stands."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.errors import QtideError
from qtide.jobs.job import Job
from qtide.ledger.ledger import Ledger
from qtide.ledger.metrics import Metrics, measure
from qtide.runs.folder import RunFolder


def show(
    run: Annotated[str, typer.Argument(help="A run's name, its folder, or `last`.")],
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Show a run: its state, its driver, what it does now, and what it has held.

    Example: qtide show last
    """
    found = describe(RunFolder.find(runs, run))
    if json:
        as_json(found)
        return
    for name, value in found.items():
        if name not in ("spec", "metrics", "slurm"):
            out.print(f"{name}: {value}", markup=False, highlight=False)
    held = found["metrics"]["nodes_held"]
    out.print(f"node-seconds held: {held:,.1f}", markup=False, highlight=False)
    for line in _account_lines(found.get("slurm", {})):
        out.print(line, markup=False, highlight=False)


def describe(run: RunFolder) -> dict[str, Any]:
    """Everything that its folder says."""
    spans = run.intervals()
    last = max((span.end for span in spans), default=0.0)
    state = run.state
    phases = [span for span in spans if span.what == "phase"]
    metrics = measure(spans)
    now = [span.label for span in phases if state == "running" and span.end == last]
    waits = [span.label for span in spans if span.what == "wait" and span.end == last]
    found = {
        "run": run.name,
        "folder": str(run.path),
        "state": state,
        "driver": run.presence.driver,
        "phases": len(phases),
        "now": now,
        "waits for": waits if state == "running" else [],
        "end": run.end,
        "metrics": metrics.as_dict(),
        "spec": asdict(run.spec),
    }
    return found | _interruption(run, state) | _slurm(run, metrics)


def _interruption(run: RunFolder, state: str) -> dict[str, str]:
    """What became of a driver that left no word, as far as can be told from here."""
    driver = run.presence.driver
    if state != "interrupted" or driver is None:
        return {}
    job = driver["slurm_job"]
    where = f"process {driver['pid']} on {driver['host']}" + (f", job {job}" if job else "")
    return {
        "interruption": f"its driver ({where}) is gone: interrupted, killed, or lost with its "
        f"machine{_word_of_slurm(job)}; what was done is kept, go on with: qtide resume {run.name}"
    }


def _word_of_slurm(job: str | None) -> str:
    """How Slurm sees a driver that is a job of its own; nothing if it cannot be asked."""
    if job is None:
        return ""
    from qtide.slurm.commands import Slurm
    from qtide.slurm.queue import entries

    try:
        found = asyncio.run(entries(Slurm(), f"--jobs={job}", "--states=all"))
    except QtideError:
        return ""
    return f" (Slurm has its job as {found[0].state})" if found else ""


def _slurm(run: RunFolder, metrics: Metrics) -> dict[str, Any]:
    """What Slurm charges for a run on it, beside what it held; if Slurm is away, that."""
    if run.spec.cluster.partition(":")[0] != "slurm":
        return {}
    from qtide.slurm.account import accounts

    job = Job(run.name, Ledger(run.name, time.time), run.values)
    try:
        found = asyncio.run(accounts(job, metrics, run.spec.time_scale, run.created))
    except QtideError as error:
        return {"slurm": {"error": str(error)}}
    return {"slurm": {name: each.as_dict() for name, each in found.items()}}


def _account_lines(slurm: dict[str, Any]) -> list[str]:
    if "error" in slurm:
        return [f"Slurm's own account cannot be had: {slurm['error']}"]
    return [
        f"{name}, by the real clock: held {each['held']:,.1f} s (ledger), charged "
        f"{each['charged']:,.0f} s ({each['source']}, {each['jobs']} jobs), "
        f"difference {each['difference']:+,.1f} s"
        for name, each in slurm.items()
    ]
