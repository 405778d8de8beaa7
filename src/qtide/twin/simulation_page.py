"""The page of a simulation: pictures and a table of all figures in one HTML file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from math import floor, log10
from pathlib import Path
from typing import Any

from qtide.strategies.strategy import strategy_names
from qtide.twin.replications import MeanEstimate, Scenario

MOST_DIGITS = 4
"""After the point."""
PICTURES = {
    "turnaround": "turnaround of a hybrid job, s",
    "slowdown": "bounded slowdown of a hybrid job",
    "node_seconds": "node-seconds of a hybrid job",
    "energy_kwh": "energy of a hybrid job, kWh",
    "qpu_occupancy": "QPUs: busy, and (pale) idle while wanted, %",
    "utilisation": "nodes held by all jobs, %",
    "fairness": "fairness of the slowdowns (Jain), %",
    "others_wait": "wait of the others' jobs, s",
}
PERCENT = {"qpu_occupancy", "utilisation", "fairness"}
COLUMNS = 2
STYLE = """
body{font-family:sans-serif;margin:2em;max-width:72em}
table{border-collapse:collapse;font-size:90%}
td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:#fff}
img{max-width:100%}
div{overflow-x:auto}
"""


def write_page(file: Path, title: str, cases: Sequence[Scenario]) -> None:
    """Write the page; intervals are of 95 % confidence."""
    number = len(cases[0].replications)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"<!doctype html><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>"
        f"<p>In virtual time. {escape(_meaning(number))}</p>"
        f"<img alt='bars' src='data:image/png;base64,{_bars(cases)}'>"
        f"<h2>All figures</h2><div>{_table(cases)}</div>"
    )


def _meaning(replications: int) -> str:
    if replications == 1:
        return "One replication: nothing is known of how much the figures vary."
    return f"Means of {replications} replications, with their 95 % confidence intervals."


def _table(cases: Sequence[Scenario]) -> str:
    """A row per figure, a column per case."""
    estimates = [case.estimates() for case in cases]
    heads = "".join(f"<th>{escape(_name(case))}</th>" for case in cases)
    rows = [
        f"<tr><th>{escape(n.replace('_', ' '))}</th>{_cells(n, estimates)}" for n in estimates[0]
    ]
    return f"<table><tr><th></th>{heads}</tr>{'</tr>'.join(rows)}</tr></table>"


def _cells(name: str, estimates: Sequence[dict[str, MeanEstimate]]) -> str:
    return "".join(f"<td>{shown(each[name])}</td>" for each in estimates)


def shown(estimate: MeanEstimate) -> str:
    """A mean and its interval, to two digits of what is uncertain, but to no more than four."""
    size = abs(estimate.mean)
    known = max(estimate.half or size / 10, size / 1000)
    digits = min(MOST_DIGITS, max(0, 1 - floor(log10(known)))) if known else 0
    mean, half = (_rounded(each, digits) for each in (estimate.mean, estimate.half))
    return mean if half == "0" else f"{mean} ± {half}"


def _rounded(value: float, digits: int) -> str:
    """A number with so many digits after the point; nought without any."""
    return f"{value:,.{digits}f}" if round(value, digits) else "0"


def _name(case: Scenario) -> str:
    number = case.setup.vqpus
    return f"{case.setup.strategy}, {number} vQPU{'' if number == 1 else 's'}"


def _bars(cases: Sequence[Scenario]) -> str:
    """The pictures, as PNG in base 64."""
    from matplotlib.figure import Figure

    rows = -(-len(PICTURES) // COLUMNS)
    height = rows * (0.9 + 0.28 * len(cases))
    figure = Figure(figsize=(11, height), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False).flat
    for axis, (name, title) in zip(axes, PICTURES.items(), strict=True):
        _draw(axis, name, cases)
        axis.set_title(title, fontsize=10)
    next(iter(figure.axes)).invert_yaxis()
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return b64encode(buffer.getvalue()).decode()


def _draw(axis: Any, name: str, cases: Sequence[Scenario]) -> None:
    names, scale = [_name(case) for case in cases], 100.0 if name in PERCENT else 1.0
    found = [case.estimates()[name] for case in cases]
    means, halves = [each.mean * scale for each in found], [each.half * scale for each in found]
    axis.barh(names, means, xerr=halves if any(halves) else None, color="#3b6ea8", capsize=2)
    if name == "qpu_occupancy":
        idle = [case.estimates()["qpu_idle_wanted"].mean * scale for case in cases]
        axis.barh(names, idle, left=means, color="#3b6ea855")
    axis.set_xlim(0, 100 if name in PERCENT else None)
    axis.spines[["top", "right"]].set_visible(False)


def draw_map(
    file: Path,
    ratios: Sequence[float],
    waits: Sequence[float],
    chart: Sequence[Sequence[str]],
    here: tuple[float, float],
) -> None:
    """Draw a map whose rows are the waits; `here` is the ratio and the wait of the job itself."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    names = [name for name in strategy_names() if any(name in row for row in chart)]
    colours = [COLOURS[strategy_names().index(name) % len(COLOURS)] for name in names]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    axis.pcolormesh(
        _places(ratios),
        _places(waits),
        [[names.index(name) for name in row] for row in chart],
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(names) - 0.5,
        edgecolors="white",
        linewidth=0.5,
    )
    axis.plot(_place(here[0], ratios), _place(here[1], waits), "k*", markersize=14)
    axis.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    axis.set_yticks(range(len(waits)), [f"{wait:g}" for wait in waits])
    axis.set_xlabel("quantum time / classical time")
    axis.set_ylabel("wait of a request for nodes, s")
    axis.set_title("advised strategy; the star is this job")
    patches = [Patch(color=colour, label=name) for name, colour in zip(names, colours, strict=True)]
    figure.legend(handles=patches, loc="outside right upper")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")


def _places(values: Sequence[float]) -> list[float]:
    """The edges of as many cells, all of the same size."""
    return [number - 0.5 for number in range(len(values) + 1)]


def _place(value: float, values: Sequence[float]) -> float:
    """Where a value is among those of the cells, between two of them in proportion."""
    if value <= values[0]:
        return 0.0
    for number in range(1, len(values)):
        low, high = values[number - 1], values[number]
        if value <= high:
            return number - 1 + (value - low) / (high - low)
    return len(values) - 1.0
