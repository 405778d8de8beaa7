"""The timeline: shows which job held and used each node and the QPU, one panel per strategy."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from qtide.core.files import write_whole
from qtide.core.ledger import Cover, Covers, Interval, What, covers, merge, outside
from qtide.core.metrics import Metrics, Panel
from qtide.interfaces.report.page import INK, LINE, MUTED, STYLE, TINT, TRACK, hue
from qtide.interfaces.report.table import brief, percent

LONGEST = 22
"""Maximum label length in characters."""
MOST_NODES, MOST_SLOTS, MOST_STRIPS = 24, 8, 8
"""Maximum height, in rows, of the nodes, the QPU slots and the queue; more lanes are squeezed."""
SHARED_HEIGHT = 2.5
"""Height, in rows, of a node that tasks share."""
APART = 0.45
"""Space between nodes, QPU and queue, in rows."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Periods of one job and one kind, drawn between `top` and `bottom` of a lane."""

    job: str
    what: What
    cover: Cover
    top: float = 0.0
    bottom: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A labelled row with `space` left free above it; sizes are in rows."""

    label: str
    bars: tuple[Bars, ...]
    height: float = 1.0
    space: float = 0.0


def lanes(intervals: Iterable[Interval]) -> list[Lane]:
    """Return the lanes from top to bottom: nodes by name, the QPU, the queue."""
    intervals = list(intervals)
    found = covers(intervals)
    jobs = list(dict.fromkeys(job for _, _, job in found))
    return [*_nodes(found, jobs, intervals), *_qpu(found, jobs), *_queue(found)]


def natural(text: str) -> list[str | int]:
    """Return a sort key that puts node10 after node9."""
    parts = re.split(r"([0-9]+)", text)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def clean(label: str) -> str:
    """Return the label as drawn: printable and not too long."""
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in label)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _nodes(found: Covers, jobs: list[str], intervals: Sequence[Interval]) -> list[Lane]:
    names = _names(found, "node/")
    shared = _shared(intervals)
    usual = SHARED_HEIGHT if shared else 1.0
    height = min(usual, MOST_NODES / max(1, len(names)))
    made = []
    for name in names:
        bars = _bars(found, jobs, f"node/{name}")
        if strips := shared.get(f"node/{name}"):
            bars = (*(each for each in bars if each.what != "busy"), *strips)
        made.append(Lane(clean(name), bars, height))
    return made


def _shared(intervals: Sequence[Interval]) -> dict[str, list[Bars]]:
    """Bars of nodes whose tasks share them: one strip for each core, so that one sees how full.

    The ledger knows how many cores a task has, not which: it is drawn on the first free ones.
    """
    nodes = [each for each in intervals if each.lane.startswith("node/")]
    divided = {each.lane for each in nodes if each.what == "busy" and each.part}
    cores = {
        each.lane: each.part[0]
        for each in nodes
        if each.what == "held" and each.part and each.lane in divided
    }
    strips: defaultdict[tuple[str, int, str], Cover] = defaultdict(list)
    free_at: dict[str, list[float]] = {lane: [0.0] * number for lane, number in cores.items()}
    for each in sorted(nodes, key=lambda each: each.start):
        if each.what == "busy" and each.lane in cores:
            ends = free_at[each.lane]
            free = [n for n, end in enumerate(ends) if end <= each.start]
            for strip in free[: each.part[0] if each.part else None]:
                ends[strip] = each.end
                strips[each.lane, strip, each.job].append((each.start, each.end))
    made: defaultdict[str, list[Bars]] = defaultdict(list)
    for (lane, strip, job), cover in strips.items():
        top, bottom = strip / cores[lane], (strip + 1) / cores[lane]
        made[lane].append(Bars(job, "busy", merge(cover), top, bottom))
    return made


def _qpu(found: Covers, jobs: list[str]) -> list[Lane]:
    """Return one lane for a single slot and device; otherwise the slots, then the devices."""
    slots, devices = _names(found, "vqpu/"), _names(found, "qpu/")
    if len(slots) <= 1 and len(devices) <= 1:
        parts = [*(f"vqpu/{name}" for name in slots), *(f"qpu/{name}" for name in devices)]
        bars = tuple(each for part in parts for each in _bars(found, jobs, part))
        return _apart([Lane("QPU", bars)] if bars else [])
    height = min(1.0, MOST_SLOTS / max(1, len(slots)))
    held = [Lane(clean(f"vQPU {n}"), _bars(found, jobs, f"vqpu/{n}"), height) for n in slots]
    label = "QPU {}" if len(devices) > 1 else "QPU"
    busy = [Lane(clean(label.format(n)), _bars(found, jobs, f"qpu/{n}")) for n in devices]
    return _apart([*held, *busy])


def _queue(found: Covers) -> list[Lane]:
    """Return one lane with a strip for each waiting job, since waits overlap."""
    waits: dict[str, Cover] = {}
    for (what, _, job), cover in found.items():
        if what == "wait" and cover:
            waits[job] = merge([*waits.get(job, []), *cover])
    size = 1 / max(1, len(waits))
    bars = tuple(
        Bars(job, "wait", waits[job], index * size, (index + 1) * size)
        for index, job in enumerate(sorted(waits, key=natural))
    )
    height = max(1.0, 0.7 * min(len(waits), MOST_STRIPS))
    return _apart([Lane("queue", bars, height)] if bars else [])


def _names(found: Covers, kind: str) -> list[str]:
    names = {lane.removeprefix(kind) for _, lane, _ in found if lane.startswith(kind)}
    return sorted(names, key=natural)


def _bars(found: Covers, jobs: Iterable[str], lane: str) -> tuple[Bars, ...]:
    """Return the bars of a lane: busy is drawn over held; a starting node is not busy."""
    whats: tuple[What, ...] = ("held", "starting", "busy")
    drawn = (Bars(job, what, _cover(found, what, lane, job)) for what in whats for job in jobs)
    return tuple(each for each in drawn if each.cover)


def _cover(found: Covers, what: What, lane: str, job: str) -> Cover:
    cover = found.get((what, lane, job), [])
    return outside(cover, found.get(("starting", lane, job), [])) if what == "busy" else cover


def _apart(group: list[Lane]) -> list[Lane]:
    return [Lane(g.label, g.bars, g.height, 0.0 if i else APART) for i, g in enumerate(group)]


WIDTH, ROW = 10.0, 0.215
"""Width of the figure and height of a row, in inches."""
TITLE, AXIS, LEGEND, SIDE, KIND = 0.42, 0.46, 0.24, 0.20, 0.97
"""Sizes in inches: title above each panel, time axis below the last one, legend line, side
margin, legend entry of one kind."""
HAIRLINE = 1 / 800
"""Share of the time axis (a pixel or two) below which bars are widened and gaps closed."""
MOST_JOBS = 12
"""Maximum number of jobs named in the legend."""
MOST_BARS = 10_000
"""Maximum number of vector bars per panel; beyond it, an SVG rasterises them to stay small."""
HATCHES: dict[What, str] = {"wait": "//////", "starting": "||||||"}
"""Hatches of the kinds that are neither held nor busy."""
Box = tuple[float, float, float, float]
Corners = list[tuple[float, float]]
Corner = Literal["upper left", "upper right"]
Entry = tuple[str, Artist]
"""A legend entry."""


def draw(panels: Sequence[Panel]) -> Figure:
    """Draw the panels below one another on a common time axis, each starting at zero."""
    if not panels:
        raise ValueError("a timeline needs at least one panel")
    rows = [lanes(panel.intervals) for panel in panels]
    heights = [ROW * _height(each) for each in rows]
    left = _left(rows)
    kinds = _kinds(panels)
    jobs, columns = _legend_grid(panels, WIDTH - left - SIDE - KIND * len(kinds))
    head = LEGEND * max(1, -(-len(jobs) // columns))
    tall = head + sum(heights) + TITLE * len(panels) + AXIS
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, tall), facecolor="white")
        FigureCanvasAgg(figure)
        if jobs:
            _legend(figure, jobs, columns, left, "upper left")
        _legend(figure, kinds, len(kinds), WIDTH - SIDE, "upper right")
        top, last = tall - head, max(map(_length, panels)) or 1.0
        for panel, lane_rows, height in zip(panels, rows, heights, strict=True):
            top -= TITLE + height
            box = (left / WIDTH, top / tall, (WIDTH - left - SIDE) / WIDTH, height / tall)
            axes = _axes(figure, box, lane_rows, last)
            _draw_panel(axes, panel, lane_rows, last)
        _label_time(axes)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write PNG or SVG according to the path's suffix; equal figures give equal bytes."""
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    drawn = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawn, format=kind, dpi=160, metadata=metadata)
    write_whole(path, drawn.getvalue())


def _axes(figure: Figure, box: Box, rows: Sequence[Lane], last: float) -> Axes:
    axes = figure.add_axes(box)
    axes.patch.set_visible(False)
    axes.set_xlim(0, last * 1.004)
    axes.set_ylim(_height(rows), 0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8, labelcolor=MUTED, pad=5)
    axes.tick_params(axis="x", labelbottom=False)
    axes.spines[:].set_visible(False)
    return axes


def _draw_panel(axes: Axes, panel: Panel, rows: Sequence[Lane], last: float) -> None:
    placed = _placed(rows)
    _label_lanes(axes, placed)
    end = _length(panel)
    # Added as plain artists: computing the known axis limits again is slow for many bars.
    axes.add_artist(_tracks(placed, end))
    for patch in _patches(panel, placed, last):
        axes.add_artist(patch)
    axes.axvline(end, color=INK, linewidth=1.0, zorder=4)
    _entitle(axes, panel, ROW * _height(rows))


def _placed(rows: Sequence[Lane]) -> list[tuple[Lane, float]]:
    """Return each lane with the position of its upper edge."""
    placed, top = [], 0.0
    for lane in rows:
        placed.append((lane, top + lane.space))
        top += lane.space + lane.height
    return placed


def _tracks(placed: Sequence[tuple[Lane, float]], end: float) -> PathPatch:
    """Draw the empty rows, so that idle time is visible."""
    boxes = [_rectangle(0, end, *_edges(lane, top)) for lane, top in placed]
    return PathPatch(_outline(boxes), facecolor=TRACK, linewidth=0, zorder=0)


def _patches(
    panel: Panel, placed: Sequence[tuple[Lane, float]], last: float
) -> Iterator[PathPatch]:
    """Yield one patch per job and kind: drawing thousands of bars stays fast and the file small."""
    boxes: defaultdict[tuple[What, str], list[Corners]] = defaultdict(list)
    origin, order = _origin(panel), _job_order(panel)
    for lane, top in placed:
        upper, lower = _edges(lane, top)
        for bars in lane.bars:
            span = (upper + bars.top * (lower - upper), upper + bars.bottom * (lower - upper))
            boxes[bars.what, bars.job] += _rectangles(bars, span, origin, last * HAIRLINE)
    many = sum(map(len, boxes.values())) > MOST_BARS
    for (what, job), each in boxes.items():
        yield PathPatch(_outline(each), rasterized=many, **_look(what, hue(order[job])))


def _rectangles(
    bars: Bars, span: tuple[float, float], origin: float, least: float
) -> list[Corners]:
    """Widen bars thinner than a hairline; join bars closer than half of one."""
    wide = ((start, max(end, start + least)) for start, end in bars.cover)
    return [_rectangle(s - origin, e - origin, *span) for s, e in merge(wide, least / 2)]


def _look(what: What, colour: str) -> dict[str, Any]:
    if what in HATCHES:
        line = {"edgecolor": colour, "hatch": HATCHES[what], "linewidth": 0.6}
        return {"facecolor": "none", "zorder": 3} | line
    held = what == "held"
    zorder, alpha = (2, TINT) if held else (3, None)
    return {"facecolor": colour, "alpha": alpha, "linewidth": 0, "zorder": zorder}


def _outline(boxes: Sequence[Corners]) -> Outline:
    return Outline.make_compound_path_from_polys(np.array(boxes).reshape(-1, 4, 2))


def _rectangle(start: float, end: float, upper: float, lower: float) -> Corners:
    return [(start, upper), (end, upper), (end, lower), (start, lower)]


def _edges(lane: Lane, top: float) -> tuple[float, float]:
    """Return a lane's drawn edges; squeezed lanes get no margin, which would hide the bars."""
    margin = 0.1 if lane.height > 0.5 else 0.0
    return top + margin, top + lane.height - margin


def _label_lanes(axes: Axes, placed: Sequence[tuple[Lane, float]]) -> None:
    """Label as many lanes as there is room for."""
    ticks: dict[float, str] = {}
    for lane, top in placed:
        middle = top + lane.height / 2
        if not ticks or middle - max(ticks) > 0.6:
            ticks[middle] = lane.label
    axes.set_yticks(list(ticks), list(ticks.values()))


def _entitle(axes: Axes, panel: Panel, height: float) -> None:
    above = 1 + 0.09 / height
    style: Any = {"transform": axes.transAxes, "va": "baseline"}
    axes.text(0, above, clean(panel.strategy), size=11, weight="bold", color=INK, **style)
    axes.text(1, above, _figures(panel.metrics), size=8.5, color=MUTED, ha="right", **style)


def _figures(metrics: Metrics) -> str:
    wall = [f"mean wall {brief(metrics.mean_wall)} s"] if len(metrics.jobs) > 1 else []
    starting = f"{brief(metrics.nodes_starting)} starting, " if metrics.nodes_starting else ""
    busy = f"{starting}{brief(metrics.nodes_busy)} busy"
    nodes = f"{brief(metrics.nodes_held)} node-s held, {busy}"
    if metrics.divided:
        nodes = f"{nodes}, {percent(metrics.core_efficiency)} of the cores"
    qpu = f"QPU {percent(metrics.qpu_occupancy)} busy"
    return "  ·  ".join([f"total {brief(metrics.total)} s", *wall, nodes, qpu])


def _label_time(axes: Axes) -> None:
    axes.tick_params(axis="x", labelbottom=True)
    axes.set_xlabel("time (s)", size=8.5, color=MUTED, labelpad=4)


def _legend_grid(panels: Sequence[Panel], room: float) -> tuple[list[Entry], int]:
    """Return the legend's jobs, and as many columns as there is room for."""
    names = list(zip_longest(*(_job_order(panel) for panel in panels)))
    jobs: list[Entry] = [
        (_job_label(each, index), Patch(color=hue(index), linewidth=0))
        for index, each in enumerate(names[:MOST_JOBS])
    ]
    if len(names) > MOST_JOBS:
        jobs.append((f"and {len(names) - MOST_JOBS} more", Patch(facecolor="none", linewidth=0)))
    longest = max((len(label) for label, _ in jobs), default=0)
    return jobs, max(1, min(len(jobs), int(room / (0.6 + 0.08 * longest))))


def _kinds(panels: Sequence[Panel]) -> list[Entry]:
    kinds: list[Entry] = [
        ("held", Patch(facecolor=MUTED, alpha=TINT, linewidth=0)),
        ("busy", Patch(facecolor=MUTED, linewidth=0)),
    ]
    there = {each.what for panel in panels for each in panel.intervals}
    named: list[tuple[What, str]] = [("starting", "starting"), ("wait", "waiting")]
    for what, label in named:
        if what in there:
            hatched = Patch(facecolor="none", edgecolor=MUTED, hatch=HATCHES[what], linewidth=0.6)
            kinds.append((label, hatched))
    return kinds


def _job_label(names: Sequence[str | None], index: int) -> str:
    """Return the job's name if all panels agree on it, otherwise its number."""
    known = {name for name in names if name is not None}
    label = clean(known.pop()) if len(known) == 1 else f"job {index + 1}"
    # Matplotlib omits labels that begin with an underscore.
    return f"\N{ZERO WIDTH SPACE}{label}" if label.startswith("_") else label


def _legend(figure: Figure, entries: list[Entry], columns: int, left: float, at: Corner) -> None:
    figure.legend(
        [artist for _, artist in entries],
        [label for label, _ in entries],
        loc=at,
        bbox_to_anchor=(left / WIDTH, 1 - 0.06 / figure.get_figheight()),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.6,
        handleheight=0.9,
        columnspacing=1.6,
    )


def _job_order(panel: Panel) -> dict[str, int]:
    """Number the jobs; those the panel does not name come last."""
    jobs = dict.fromkeys([*panel.jobs, *(each.job for each in panel.intervals)])
    return {job: index for index, job in enumerate(jobs)}


def _origin(panel: Panel) -> float:
    return min((each.start for each in panel.intervals), default=0.0)


def _length(panel: Panel) -> float:
    return max((each.end for each in panel.intervals), default=0.0) - _origin(panel)


def _height(rows: Sequence[Lane]) -> float:
    return max(1.0, sum(lane.height + lane.space for lane in rows))


def _left(rows: Sequence[Sequence[Lane]]) -> float:
    """Return the width in inches that the longest label needs."""
    longest = max((len(lane.label) for each in rows for lane in each), default=0)
    return 0.24 + 0.078 * max(5, longest)
