"""The timeline: which job held and used each node and the QPU, one panel per strategy."""

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
"""The most characters in a label."""
MOST_NODES, MOST_SLOTS, MOST_STRIPS = 24, 8, 8
"""The most rows for nodes, QPU slots and waiting jobs; beyond that, they share this height."""
APART = 0.45
"""The space between nodes, QPU and queue, in rows."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Stretches of one job that look the same, drawn from `top` to `bottom` of a lane."""

    job: str
    what: What
    cover: Cover
    top: float = 0.0
    bottom: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A labelled row; `space` is left free above it. Sizes are in rows."""

    label: str
    bars: tuple[Bars, ...]
    height: float = 1.0
    space: float = 0.0


def lanes(intervals: Iterable[Interval]) -> list[Lane]:
    """The nodes by name, below them the QPU, below it the queued requests."""
    found = covers(intervals)
    jobs = list(dict.fromkeys(job for _, _, job in found))
    return [*_nodes(found, jobs), *_qpu(found, jobs), *_queue(found)]


def natural(text: str) -> list[str | int]:
    """A sort key that puts node10 after node9."""
    parts = re.split(r"([0-9]+)", text)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def clean(label: str) -> str:
    """The label as drawn: printable and not too long."""
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in label)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _nodes(found: Covers, jobs: list[str]) -> list[Lane]:
    names = _names(found, "node/")
    height = min(1.0, MOST_NODES / max(1, len(names)))
    return [Lane(clean(name), _bars(found, jobs, f"node/{name}"), height) for name in names]


def _qpu(found: Covers, jobs: list[str]) -> list[Lane]:
    """One lane if there is one slot; otherwise the slots first, then the devices."""
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
    """One lane with a strip for each waiting job, since their waits overlap."""
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
    """Busy stretches are drawn over held ones; while a node is starting, it is not busy."""
    whats: tuple[What, ...] = ("held", "starting", "busy")
    drawn = (Bars(job, what, _cover(found, what, lane, job)) for what in whats for job in jobs)
    return tuple(each for each in drawn if each.cover)


def _cover(found: Covers, what: What, lane: str, job: str) -> Cover:
    cover = found.get((what, lane, job), [])
    return outside(cover, found.get(("starting", lane, job), [])) if what == "busy" else cover


def _apart(group: list[Lane]) -> list[Lane]:
    return [Lane(g.label, g.bars, g.height, 0.0 if i else APART) for i, g in enumerate(group)]


WIDTH, ROW = 10.0, 0.215
"""Inches: the figure's width and a row's height."""
TITLE, AXIS, LEGEND, SIDE, KIND = 0.42, 0.46, 0.24, 0.20, 0.97
"""Inches: above each panel, below the last one, a line of the legend, the margin, the
legend of one kind."""
HAIRLINE = 1 / 800
"""The fraction of the time axis below which bars are widened and gaps closed: a pixel or two."""
MOST_JOBS = 12
"""The most jobs named in the legend."""
MOST_BARS = 10_000
"""The most bars of a panel; more become pixels in an SVG, which would otherwise be too large."""
HATCHES: dict[What, str] = {"wait": "//////", "starting": "||||||"}
"""Kinds that are neither held nor at work."""
Box = tuple[float, float, float, float]
Corners = list[tuple[float, float]]
Corner = Literal["upper left", "upper right"]
Entry = tuple[str, Artist]
"""A line of the legend."""


def draw(panels: Sequence[Panel]) -> Figure:
    """A figure with panels below one another on one time axis, each starting at zero."""
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
    """Write PNG or SVG by the path's suffix; the same figure gives the same bytes."""
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
    # As plain artists: the limits are known, and computing them again is slow for many bars.
    axes.add_artist(_tracks(placed, end))
    for patch in _patches(panel, placed, last):
        axes.add_artist(patch)
    axes.axvline(end, color=INK, linewidth=1.0, zorder=4)
    _entitle(axes, panel, ROW * _height(rows))


def _placed(rows: Sequence[Lane]) -> list[tuple[Lane, float]]:
    """Each lane with the position of its upper edge."""
    placed, top = [], 0.0
    for lane in rows:
        placed.append((lane, top + lane.space))
        top += lane.space + lane.height
    return placed


def _tracks(placed: Sequence[tuple[Lane, float]], end: float) -> PathPatch:
    """The empty rows, so that idle time is visible too."""
    boxes = [_rectangle(0, end, *_edges(lane, top)) for lane, top in placed]
    return PathPatch(_outline(boxes), facecolor=TRACK, linewidth=0, zorder=0)


def _patches(
    panel: Panel, placed: Sequence[tuple[Lane, float]], last: float
) -> Iterator[PathPatch]:
    """One patch per job and kind, so that thousands of bars stay fast and the file small."""
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
    """Widen bars that are thinner than a hairline; join bars that are closer than one."""
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
    """Squeezed lanes have no space between them: it would be all one sees."""
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
    qpu = f"QPU {percent(metrics.qpu_occupancy)} busy"
    return "  ·  ".join([f"total {brief(metrics.total)} s", *wall, nodes, qpu])


def _label_time(axes: Axes) -> None:
    axes.tick_params(axis="x", labelbottom=True)
    axes.set_xlabel("time (s)", size=8.5, color=MUTED, labelpad=4)


def _legend_grid(panels: Sequence[Panel], room: float) -> tuple[list[Entry], int]:
    """The jobs by colour, in as many columns as there is room for."""
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
    """The job's name if all panels agree on it."""
    known = {name for name in names if name is not None}
    label = clean(known.pop()) if len(known) == 1 else f"job {index + 1}"
    # Matplotlib leaves out labels that begin with an underscore.
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
    """The number of each job; jobs that the panel does not name come last."""
    jobs = dict.fromkeys([*panel.jobs, *(each.job for each in panel.intervals)])
    return {job: index for index, job in enumerate(jobs)}


def _origin(panel: Panel) -> float:
    return min((each.start for each in panel.intervals), default=0.0)


def _length(panel: Panel) -> float:
    return max((each.end for each in panel.intervals), default=0.0) - _origin(panel)


def _height(rows: Sequence[Lane]) -> float:
    return max(1.0, sum(lane.height + lane.space for lane in rows))


def _left(rows: Sequence[Sequence[Lane]]) -> float:
    """Room for the longest label."""
    longest = max((len(lane.label) for each in rows for lane in each), default=0)
    return 0.24 + 0.078 * max(5, longest)
