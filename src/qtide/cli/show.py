"""qtide show: where a run stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from qtide.cli import options
from qtide.cli.output import as_json, out
from qtide.ledger.metrics import measure
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
        if name not in ("spec", "metrics"):
            out.print(f"{name}: {value}", markup=False, highlight=False)
    held = found["metrics"]["nodes_held"]
    out.print(f"node-seconds held: {held:,.1f}", markup=False, highlight=False)


def describe(run: RunFolder) -> dict[str, Any]:
    """Everything that its folder says."""
    spans = run.intervals()
    last = max((span.end for span in spans), default=0.0)
    state = run.state
    phases = [span for span in spans if span.what == "phase"]
    now = [span.label for span in phases if state == "running" and span.end == last]
    waits = [span.label for span in spans if span.what == "wait" and span.end == last]
    return {
        "run": run.name,
        "folder": str(run.path),
        "state": state,
        "driver": run.presence.driver,
        "phases": len(phases),
        "now": now,
        "waits for": waits if state == "running" else [],
        "end": run.end,
        "metrics": measure(spans).as_dict(),
        "spec": asdict(run.spec),
    }
