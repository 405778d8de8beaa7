"""The page of a simulation, and the map of advised strategies."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from typing import Any

from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from qtide.interfaces.report.page import (
    INK,
    LINE,
    MUTED,
    TINT,
    Page,
    Section,
    hint,
    hue,
    inline,
    small_pictures,
    table,
)
from qtide.interfaces.report.table import Cell
from qtide.strategies.strategy import strategy_names
from qtide.twin.simulate import MeanEstimate, Scenario

NAMES = {
    "jobs": "hybrid jobs that ended",
    "turnaround": "turnaround, s",
    "queue_nodes": "wait for nodes, s",
    "queue_qpu": "wait for the QPU, s",
    "node_seconds": "node-seconds held",
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
"""The figures in words, with their units; all are means per hybrid job unless they say more."""
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
"""After the point."""
WIDTH, ROW, AXIS = 4.2, 0.24, 0.3
"""Inches: a picture's width, the height of a bar and of the axis."""


def write_page(file: Path, title: str, cases: Sequence[Scenario]) -> None:
    """Write the page; intervals are of 95 % confidence."""
    pictures = [
        (caption, inline(_bars(name, cases), f"p-{name}", _described(caption, name, cases)))
        for name, caption in PICTURES.items()
    ]
    figures = [[Cell(NAMES[name]), *_cells(name, cases)] for name in cases[0].estimates()]
    sections = [
        Section("pictures", "At a glance", small_pictures(pictures)),
        Section(
            "figures",
            "All figures",
            table("figures", ["", *map(_name, cases)], figures)
            + hint("Times and node-seconds are means per hybrid job."),
        ),
    ]
    Page(title, findings(cases), sections, [_meaning(len(cases[0].replications))]).write(file)


def findings(cases: Sequence[Scenario]) -> list[str]:
    """What the simulation shows, in sentences; a difference within the intervals is none."""
    if len(cases) == 1:
        found = cases[0].estimates()
        return [
            f"With {_name(cases[0])}, a hybrid job takes {_shown('turnaround', found)} s from "
            f"submission to end and holds {_shown('node_seconds', found)} node-seconds; the QPUs "
            f"are busy for {_shown('qpu_occupancy', found)} % of the time."
        ]
    return [
        _finding("turnaround", "Hybrid jobs end soonest", "s on average", cases),
        _finding("node_seconds", "They hold the fewest node-seconds", "per job", cases),
        _busiest(cases),
    ]


def _finding(name: str, verb: str, unit: str, cases: Sequence[Scenario]) -> str:
    """Which case has the least of a figure, and by how much."""
    ranked = sorted(cases, key=lambda case: case.estimates()[name].mean)
    (first, least), (second, next_) = ((each, each.estimates()[name]) for each in ranked[:2])
    most = ranked[-1].estimates()[name]
    if most.mean - least.mean <= least.half + most.half:
        return f"{verb} under no strategy in particular: all are within the intervals."
    tied = [
        _name(each)
        for each in ranked
        if each.estimates()[name].mean - least.mean <= least.half + each.estimates()[name].half
    ]
    if len(tied) > 1:
        names = f"{', '.join(tied[:-1])} and {tied[-1]}"
        same = f"which do not differ beyond the intervals ({shown(least)} {unit})"
        return f"{verb} with {names}, {same}."
    less = 1 - least.mean / next_.mean
    return (
        f"{verb} with {_name(first)}: {shown(least)} {unit}, {less:.0%} less than with "
        f"{_name(second)} ({shown(next_)})."
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
    """The estimate in the unit that its name has."""
    if not NAMES[name].endswith("%"):
        return estimate
    return MeanEstimate(100 * estimate.mean, 100 * estimate.half)


def shown(estimate: MeanEstimate) -> str:
    """A mean and its interval, to two digits of what is uncertain, but to no more than four."""
    size = abs(estimate.mean)
    known = max(estimate.half or size / 10, size / 1000)
    digits = min(MOST_DIGITS, max(0, 1 - floor(log10(known)))) if known else 0
    mean, half = (_rounded(each, digits) for each in (estimate.mean, estimate.half))
    return mean if half == "0" else f"{mean} ± {half}"


def _rounded(value: float, digits: int) -> str:
    """A number with so many digits after the point; zero without any."""
    return f"{value:,.{digits}f}" if round(value, digits) else "0"


def _name(case: Scenario) -> str:
    number = case.policy.vqpus
    return f"{case.policy.strategy}, {number} vQPU{'' if number == 1 else 's'}"


def _described(caption: str, name: str, cases: Sequence[Scenario]) -> str:
    """A picture in words, for screen readers."""
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
    axis.tick_params(colors=MUTED, labelsize=8.5, length=0)
    axis.grid(axis="x", color=LINE, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[:].set_visible(False)
    return figure


def draw_map(
    file: Path,
    ratios: Sequence[float],
    waits: Sequence[float],
    chart: Sequence[Sequence[str]],
    here: tuple[float, float],
) -> None:
    """Draw a map whose rows are the waits; `here` is the ratio and the wait of the job itself."""
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
