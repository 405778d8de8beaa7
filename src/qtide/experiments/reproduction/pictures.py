"""The pictures of the reproduction: each item in its published form, and in one that shows more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from qtide.core.ledger import Interval
from qtide.core.metrics import Panel
from qtide.core.metrics import measure as measure_spans
from qtide.experiments.reproduction.result import ItemResult, Value
from qtide.experiments.reproduction.schedules import (
    OURS,
    PUBLISHED,
    RATIOS,
    SHARES,
    WAITS,
    pair,
    pairs,
    shared_loop,
    sharing_plan,
    strategy_chart,
)
from qtide.experiments.sharing.experiment import measure
from qtide.experiments.sharing.figures import lines, totals, violins
from qtide.interfaces.report import timeline
from qtide.interfaces.report.page import INK, LINE, MUTED, STYLE, hue
from qtide.runs.comparison import read_cases
from qtide.twin.simulation_page import map_figure

Drawing = tuple[Figure, str]
"""A picture and what it shows, in words."""


def drawn(folder: Path, found: ItemResult, *, quick: bool) -> Iterator[Drawing]:
    """Draw an item, if it was made."""
    if not found.missing and found.name in PICTURES:
        yield from PICTURES[found.name](folder, found, quick)


def _clustering(folder: Path, found: ItemResult, _: bool) -> Iterator[Drawing]:
    words = "Wall time and node-seconds of each strategy: published, here, and by the twin."
    yield bars(found.values), words
    panels = _panels(folder / found.name, 1)
    if panels:
        yield timeline.draw(panels), "One job under each strategy: what nodes and QPU did."


def _sharing(folder: Path, _: ItemResult, quick: bool) -> Iterator[Drawing]:
    rows = measure(sharing_plan(quick), folder / SHARES)
    for draw, words in (
        (lines, "Occupancy, quantum time and queue time by number of jobs (figure 7)."),
        (totals, "Total time, shared and exclusive (figure 8, d)."),
        (violins, "Run times of the jobs (figure 8, e)."),
    ):
        with matplotlib.rc_context(STYLE):
            yield draw(rows), words


def _granularity(_: Path, __: ItemResult, ___: bool) -> Iterator[Drawing]:
    here = (0.93, 0.0)  # the published job: two minutes of 129 s classical
    for names, words in (
        (PUBLISHED, "The best of the published strategies, by granularity and wait."),
        ((*PUBLISHED, OURS), "The same with elastic."),
    ):
        yield map_figure(RATIOS, WAITS, strategy_chart(names), here), words


def _multiplexing(_: Path, __: ItemResult, ___: bool) -> Iterator[Drawing]:
    loops = {"co-scheduling": shared_loop(1), "virtual QPUs": shared_loop(4)}
    yield (
        timeline.draw([panel(name, each.ledgers) for name, each in loops.items()]),
        "Four jobs with the QPU to themselves in turn (figure 2), and with virtual QPUs (3).",
    )


def _splitting(_: Path, __: ItemResult, ___: bool) -> Iterator[Drawing]:
    yield (
        timeline.draw([panel(kind, pair(0, kind)) for kind in ("static", "split")]),
        "A pair of jobs: dedicated, and split and interleaved.",
    )
    yield ratios(), "Wall time of all pairs if split, in parts of the dedicated one."


def _allocation(folder: Path, _: ItemResult, __: bool) -> Iterator[Drawing]:
    panels = _panels(folder / "table-1", 2)
    if panels:
        yield held_over_time(panels), "Nodes held over time by two jobs, as published."
        yield timeline.draw(panels), "The same runs: what each node and the QPU did."


def _overhead(_: Path, found: ItemResult, __: bool) -> Iterator[Drawing]:
    yield rounds(found.values), "What each iteration lost here, beside DMR's mean (line)."


def _candidates(_: Path, found: ItemResult, __: bool) -> Iterator[Drawing]:
    yield by_jobs(found.values), "Mean time of a job by the number of jobs, each way."


PICTURES: dict[str, Callable[[Path, ItemResult, bool], Iterator[Drawing]]] = {
    **dict.fromkeys(("table-1", "table-2", "table-3", "table-4"), _clustering),
    SHARES: _sharing,
    "figure-1": _granularity,
    "figures-2-3": _multiplexing,
    "heterogeneous-2-3": _splitting,
    "figure-9": _allocation,
    "dmr-overhead": _overhead,
    "quantum-candidates": _candidates,
}
"""What draws an item, by name."""


def _panels(runs: Path, jobs: int) -> list[Panel]:
    """Return what so many jobs did under each strategy in the first repetition of a table."""
    return [
        case.panel()
        for strategy in (*PUBLISHED, OURS)
        for case in read_cases(runs / "1" / strategy)
        if case.jobs == jobs
    ]


def panel(name: str, ledgers: Sequence[Sequence[Interval]]) -> Panel:
    """Return jobs in virtual time as a panel of a timeline."""
    spans = [span for each in ledgers for span in each]
    jobs = tuple(dict.fromkeys(span.job for span in spans))
    return Panel(name, jobs, spans, measure_spans(spans))


Drawn = tuple[float | None, float | None]
"""A value and what it varies by."""


def bars(values: Sequence[Value]) -> Figure:
    """Draw published, measured and simulated values beside each other, with what they vary by."""
    figure = Figure(figsize=(10.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(STYLE):
        axes = figure.subplots(2, 1)
        for axis, unit in zip(axes, ("s", "node-s"), strict=True):
            shown = [each for each in values if each.unit == unit]
            means = [each.mean for each in shown]
            kinds: tuple[tuple[str, list[Drawn]], ...] = (
                ("published", [(each.published, each.spread) for each in shown]),
                ("here", [(mean.mean, mean.half) if mean else (None, None) for mean in means]),
                ("twin", [(each.twin, None) for each in shown]),
            )
            for number, (label, heights) in enumerate(kinds):
                places = [place + 0.27 * (number - 1) for place in range(len(shown))]
                tall = [height or 0.0 for height, _ in heights]
                errors = [error or 0.0 for _, error in heights]
                axis.bar(places, tall, 0.25, color=hue(number), label=label)
                marked = [at for at, error in enumerate(errors) if error]
                axis.errorbar(
                    [places[at] for at in marked],
                    [tall[at] for at in marked],
                    [errors[at] for at in marked],
                    fmt="none",
                    ecolor=INK,
                    capsize=2,
                )
            names = [each.what.partition(":")[0].replace(", ", "\n") for each in shown]
            axis.set_xticks(range(len(shown)), names, fontsize=8, color=MUTED)
            axis.set_ylim(bottom=0)
            title = "wall time, s" if unit == "s" else "node-seconds"
            axis.set_title(title, fontsize=10, loc="left", color=INK)
            _plain(axis)
        _legend(figure, axes[0])
    return figure


def rounds(values: Sequence[Value]) -> Figure:
    """Draw every measured repetition as a dot, beside the published value as a line."""
    figure, axis = _single(0.7 + 0.55 * len(values))
    for number, each in enumerate(values):
        axis.plot(each.measured, [number] * len(each.measured), "o", color=hue(1), alpha=0.7)
        axis.vlines(each.published or 0.0, number - 0.35, number + 0.35, color=hue(0), linewidth=2)
    axis.set_yticks(range(len(values)), [each.what for each in values], fontsize=8, color=MUTED)
    axis.set_xlim(left=0)
    axis.set_xlabel(values[0].unit, color=MUTED, fontsize=9)
    axis.invert_yaxis()
    return figure


def by_jobs(values: Sequence[Value]) -> Figure:
    """Draw values named `WAY, N jobs: …` as one line per way."""
    figure, axis = _single(3.4)
    parts = [(each.what.partition(",")[0], int(each.what.split()[1]), each) for each in values]
    for number, way in enumerate(dict.fromkeys(way for way, *_ in parts)):
        mine = [(jobs, each.ours or 0.0) for name, jobs, each in parts if name == way]
        axis.plot(*zip(*mine, strict=True), "o-", color=hue(number), label=way)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("jobs that share the QPU", color=MUTED, fontsize=9)
    axis.set_ylabel(values[0].unit, color=MUTED, fontsize=9)
    axis.legend(frameon=False, fontsize=8, labelcolor=MUTED)
    return figure


def ratios() -> Figure:
    """Draw how the wall times of split pairs are distributed."""
    figure, axis = _single(2.8)
    axis.hist([each.wall for each in pairs()], bins=30, color=hue(0))
    axis.axvline(1.0, color=MUTED, linestyle="--")
    axis.set_xlabel("wall time, split / dedicated", color=MUTED, fontsize=9)
    axis.set_ylabel("pairs", color=MUTED, fontsize=9)
    return figure


def _single(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(10.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(STYLE):
        axis = figure.subplots()
    _plain(axis)
    return figure, axis


def _legend(figure: Figure, axis: Axes) -> None:
    """Name the colours above the picture, where they cover nothing."""
    words: Any = {"frameon": False, "fontsize": 8, "labelcolor": MUTED, "ncols": 3}
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper right", **words)


def _plain(axis: Axes) -> None:
    """Draw the frame in colours that also suit dark mode."""
    axis.grid(axis="y", color=LINE, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(colors=MUTED, labelsize=8)
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LINE)


def held_over_time(panels: Sequence[Panel]) -> Figure:
    """Draw the number of nodes that each job holds over time, one panel per strategy."""
    figure = Figure(figsize=(10.0, 1.5 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(STYLE):
        axes = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            began = min(span.start for span in panel.intervals)
            counts = []
            held = [s for s in panel.intervals if s.what == "held" and s.lane.startswith("node/")]
            moments = sorted({0.0, *(t - began for s in held for t in (s.start, s.end))})
            for job in panel.jobs:
                mine = [s for s in held if s.job == job]
                counts.append(
                    [sum(s.start - began <= t < s.end - began for s in mine) for t in moments]
                )
            colours = [hue(number) for number in range(len(counts))]
            axis.stackplot(moments, *counts, step="post", colors=colours, labels=panel.jobs)
            axis.set_title(panel.strategy, fontsize=9, loc="left", color=INK)
            _plain(axis)
        lanes = {s.lane for panel in panels for s in panel.intervals if s.lane.startswith("node/")}
        axes[0].set_ylim(0, len(lanes) + 0.2)  # a node may change hands within a millisecond
        axes[0].set_xlim(left=0)
        _legend(figure, axes[0])
        axes[-1].set_xlabel("s", color=MUTED, fontsize=9)
    return figure
