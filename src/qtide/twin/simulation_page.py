"""The report page of a simulation, and the map of advised strategies."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from qtide.interfaces.report.page import (
    INK,
    LINE,
    MUTED,
    TINT,
    Page,
    PageSection,
    hint,
    hue,
    inline,
    small_pictures,
    table,
)
from qtide.interfaces.report.table import Cell
from qtide.strategies.strategy import strategy_names
from qtide.twin.advice import MapCell
from qtide.twin.replications import MeanEstimate, Scenario

NAMES = {
    "jobs": "hybrid jobs that ended",
    "turnaround": "turnaround, s",
    "queue_nodes": "wait for nodes, s",
    "queue_qpu": "wait for the QPU, s",
    "queue_qpu_p95": "wait of a payload for the QPU that 95 % do not exceed, s",
    "node_seconds": "node-seconds held",
    "charge": "charged by the site, billing units times seconds",
    "efficiency": "busy part of the held node-seconds, %",
    "slowdown": "bounded slowdown",
    "fairness": "fairness of the slowdowns (Jain), %",
    "qpu_occupancy": "QPUs busy, %",
    "qpu_idle_wanted": "QPUs idle while a job waits for one, %",
    "promises_made": "longest waits promised, %",
    "promises_kept": "promises kept, %",
    "failed": "failed jobs",
    "utilisation": "nodes held by all jobs, %",
    "others_wait": "wait of other jobs, s",
    "others_slowdown": "bounded slowdown of other jobs",
    "energy_kwh": "energy, kWh",
}
"""Labels of the figures with units; figures are means per hybrid job unless stated otherwise."""
PICTURES = {
    "turnaround": "Turnaround of a hybrid job, s",
    "slowdown": "Bounded slowdown of a hybrid job",
    "node_seconds": "Node-seconds of a hybrid job",
    "energy_kwh": "Energy of a hybrid job, kWh",
    "qpu_occupancy": "QPUs: busy, and (pale) idle while wanted, %",
    "utilisation": "Nodes held by all jobs, %",
    "fairness": "Fairness of the slowdowns (Jain), %",
    "others_wait": "Wait of other jobs, s",
}
MOST_DIGITS = 4
"""Maximum number of decimal places."""
WIDTH, ROW, AXIS = 4.2, 0.24, 0.3
"""A picture's width and the heights of a bar and of the axis, in inches."""


def write_page(file: Path, title: str, cases: Sequence[Scenario]) -> None:
    """Write the page, with 95 % confidence intervals."""
    pictures = [
        (caption, inline(_bars(name, cases), f"p-{name}", _described(caption, name, cases)))
        for name, caption in PICTURES.items()
        if name != "others_wait" or any(case.estimates()[name].mean for case in cases)
    ]
    figures = [[Cell(NAMES[name]), *_cells(name, cases)] for name in cases[0].estimates()]
    sections = [
        PageSection("pictures", "At a glance", small_pictures(pictures)),
        PageSection(
            "figures",
            "All figures",
            table("figures", ["", *map(_name, cases)], figures)
            + hint("Times and node-seconds are means per hybrid job."),
        ),
    ]
    Page(title, findings(cases), sections, [_meaning(len(cases[0].replications))]).write(file)


def findings(cases: Sequence[Scenario]) -> list[str]:
    """Summarise the results in sentences; differences within the intervals do not count."""
    if len(cases) == 1:
        found = cases[0].estimates()
        return [
            f"With {_name(cases[0])}, a hybrid job takes {_shown('turnaround', found)} s from "
            f"submission to end and holds {_shown('node_seconds', found)} node-seconds; the QPUs "
            f"are busy for {_shown('qpu_occupancy', found)} % of the time."
        ]
    return [
        _finding("turnaround", "Mean turnaround of hybrid jobs", "s", cases),
        _finding("node_seconds", "Node-seconds of a hybrid job", "node-seconds", cases),
        _busiest(cases),
    ]


def _finding(name: str, what: str, unit: str, cases: Sequence[Scenario]) -> str:
    """State which case has the lowest value of a figure, and by how much."""
    ranked = sorted(cases, key=lambda case: case.estimates()[name].mean)
    found = [case.estimates()[name] for case in ranked]
    least = found[0]
    tied = sum(each.mean - least.mean <= least.half + each.half for each in found)
    if tied == len(ranked):
        return (
            f"{what}: no case is better than another beyond the confidence intervals, which more "
            "--replications narrow."
        )
    if tied > 1:
        names = [_name(case) for case in ranked[:tied]]
        return (
            f"{what}: lowest with {'; '.join(names[:-1])} and {names[-1]}, which do not differ "
            f"beyond the confidence intervals ({shown(least)} {unit})."
        )
    less = 1 - least.mean / found[1].mean
    return (
        f"{what}: lowest with {_name(ranked[0])} ({shown(least)} {unit}), {less:.0%} below "
        f"{_name(ranked[1])} ({shown(found[1])})."
    )


def _busiest(cases: Sequence[Scenario]) -> str:
    means = [case.estimates()["qpu_occupancy"].mean for case in cases]
    low, high = min(means), max(means)
    if round(100 * low) == round(100 * high):
        return f"The QPUs are busy for {high:.0%} of the time in every case."
    busiest = _name(cases[means.index(high)])
    return f"The QPUs are busy for {low:.0%} to {high:.0%} of the time, most with {busiest}."


def _meaning(replications: int) -> str:
    if replications == 1:
        return "In virtual time, one replication: how much the figures vary is not known."
    return (
        f"In virtual time: means of {replications} replications, with their 95 % confidence "
        "intervals."
    )


def _cells(name: str, cases: Sequence[Scenario]) -> list[Cell]:
    return [Cell(_shown(name, case.estimates())) for case in cases]


def _shown(name: str, estimates: dict[str, MeanEstimate]) -> str:
    return shown(_scaled(name, estimates[name]))


def _scaled(name: str, estimate: MeanEstimate) -> MeanEstimate:
    """Convert the estimate to the unit in its label."""
    if not NAMES[name].endswith("%"):
        return estimate
    return MeanEstimate(100 * estimate.mean, 100 * estimate.half)


def shown(estimate: MeanEstimate) -> str:
    """Format a mean and its interval to two uncertain digits, at most four decimal places."""
    size = abs(estimate.mean)
    known = max(estimate.half or size / 10, size / 1000)
    digits = min(MOST_DIGITS, max(0, 1 - floor(log10(known)))) if known else 0
    mean, half = (_rounded(each, digits) for each in (estimate.mean, estimate.half))
    return mean if half == "0" else f"{mean} ± {half}"


def _rounded(value: float, digits: int) -> str:
    """Format a number with `digits` decimal places; zero as "0"."""
    return f"{value:,.{digits}f}" if round(value, digits) else "0"


def _name(case: Scenario) -> str:
    number = case.setup.vqpus
    return f"{case.setup.strategy}, {number} vQPU{'' if number == 1 else 's'}"


def _described(caption: str, name: str, cases: Sequence[Scenario]) -> str:
    """Describe a picture for screen readers."""
    values = (f"{_name(case)} {_shown(name, case.estimates())}" for case in cases)
    return f"{caption}: {'; '.join(values)}."


def _bars(name: str, cases: Sequence[Scenario]) -> Figure:
    figure = Figure(figsize=(WIDTH, AXIS + ROW * len(cases)), layout="constrained")
    axis = figure.subplots()
    names = [_name(case) for case in cases]
    found = [_scaled(name, case.estimates()[name]) for case in cases]
    means, halves = [each.mean for each in found], [each.half for each in found]
    bars: Any = {"color": hue(0), "height": 0.7, "ecolor": INK, "capsize": 2}
    axis.barh(names, means, xerr=halves if any(halves) else None, **bars)
    if name == "qpu_occupancy":
        idle = [100 * case.estimates()["qpu_idle_wanted"].mean for case in cases]
        axis.barh(names, idle, left=means, color=hue(0), alpha=TINT, height=0.7)
    axis.set_xlim(0, 100 if NAMES[name].endswith("%") else None)
    axis.invert_yaxis()
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if x >= 10 else f"{x:g}")
    axis.tick_params(colors=MUTED, labelsize=8.5, length=0)
    axis.grid(axis="x", color=LINE, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[:].set_visible(False)
    return figure


FULL = 0.5
"""Margin over the runner-up at which a map cell has its full colour."""


def draw_map(
    file: Path,
    ratios: Sequence[float],
    waits: Sequence[float],
    chart: Sequence[Sequence[MapCell]],
    here: tuple[float, float],
) -> None:
    """Write a map of the advice as a PNG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    map_figure(ratios, waits, chart, here).savefig(file, dpi=110)


def map_figure(
    ratios: Sequence[float],
    waits: Sequence[float],
    chart: Sequence[Sequence[MapCell]],
    here: tuple[float, float],
) -> Figure:
    """Draw a map whose rows are the waits; `here` is the ratio and wait of the job itself.

    Each cell has its strategy's colour; the paler it is, the closer the runner-up.
    """
    order = strategy_names()
    names = [name for name in order if any(name == cell.strategy for row in chart for cell in row)]
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axis = figure.subplots()
    for y, row in enumerate(chart):
        for x, cell in enumerate(row):
            colour = hue(order.index(cell.strategy))
            depth = 0.15 + 0.6 * min(1.0, cell.margin / FULL)
            place = (x - 0.49, y - 0.48)
            axis.add_patch(Rectangle(place, 0.98, 0.96, facecolor=colour, alpha=depth, linewidth=0))
            words = f"{cell.margin:.0%}" if cell.margin >= 0.005 else "="
            axis.text(x, y - 0.3, words, ha="center", va="center", fontsize=9, color=INK)
    axis.set_xlim(-0.5, len(ratios) - 0.5)
    axis.set_ylim(-0.5, len(waits) - 0.5)
    axis.plot(_place(here[0], ratios), _place(here[1], waits), "*", color=INK, markersize=13)
    axis.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    axis.set_yticks(range(len(waits)), [f"{wait:g}" for wait in waits])
    axis.tick_params(colors=MUTED, length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("quantum time / classical time", color=MUTED)
    axis.set_ylabel("wait of a request for nodes, s", color=MUTED)
    words = "Advised strategy, and how much more the runner-up costs; the star is this job"
    axis.set_title(words, fontsize=10, loc="left", color=INK)
    patches = [Patch(color=hue(order.index(name)), label=name) for name in names]
    figure.legend(handles=patches, loc="outside right upper", frameon=False, labelcolor=MUTED)
    return figure


def _place(value: float, values: Sequence[float]) -> float:
    """Return the position of a value among the cells' values, interpolated linearly."""
    if value <= values[0]:
        return 0.0
    for number in range(1, len(values)):
        low, high = values[number - 1], values[number]
        if value <= high:
            return number - 1 + (value - low) / (high - low)
    return len(values) - 1.0
