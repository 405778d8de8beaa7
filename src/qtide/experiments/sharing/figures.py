"""Figures of the experiment: lines with bands, totals on a log scale, violins of run times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    PercentFormatter,
)

from qtide.experiments.sharing.results import ResultRow, Spread
from qtide.experiments.sharing.sharing_plan import SharingPlan
from qtide.interfaces.report.page import (
    INK,
    LINE,
    MUTED,
    STYLE,
    TINT,
    Page,
    PageSection,
    hue,
    inline,
    picture,
    table,
)
from qtide.interfaces.report.table import Cell, brief, percent, times

Dashes = tuple[float, Sequence[float]]

WIDTH, HEIGHT = 10.0, 3.4
"""Size of a figure in inches."""
EXPECTED: Dashes = (0, (4, 2))
"""Dash pattern of predicted values."""
FEWEST = 5
"""Fewest distinct run times for a violin; fewer are drawn as dots only."""


@dataclass(frozen=True)
class Drawn:
    """A figure, its file, its title, and a description in words."""

    figure: Figure
    file: Path
    title: str
    words: str


def draw(folder: Path, rows: list[ResultRow]) -> list[Drawn]:
    """Draw all figures and write each as a PNG."""
    made = [
        (
            "lines",
            lines,
            "Occupancy and queue",
            "Occupancy of the QPU, quantum time and mean queue time by number of replicas.",
        ),
        (
            "totals",
            totals,
            "Total time",
            "Total time by number of replicas, shared and exclusive, on a log scale.",
        ),
        (
            "runtimes",
            violins,
            "Run times of the jobs",
            "Distribution of the jobs' run times by number of replicas; each dot is a job.",
        ),
    ]
    found = []
    for name, function, title, words in made:
        with matplotlib.rc_context(STYLE):
            figure = function(rows)
            file = folder / f"{name}.png"
            figure.savefig(file, dpi=150, metadata={"Software": None})
        found.append(Drawn(figure, file, title, words))
    return found


def lines(rows: list[ResultRow]) -> Figure:
    """Occupancy, quantum time and mean queue time; one line per alpha."""
    figure, axes = _panels(3)
    for number, (alpha, mine) in enumerate(_by_alpha(rows)):
        colour, label = hue(number), f"α = {alpha:g}"
        _band(axes[0], mine, lambda row: row.occupancy, colour, label)
        _band(axes[1], mine, lambda row: row.quantum, colour, label)
        _band(axes[2], mine, lambda row: row.queue, colour, label)
        _expected(axes[0], mine, lambda row: row.loop.occupancy(row.replicas), colour)
        _expected(axes[2], mine, lambda row: row.loop.queue(row.replicas), colour)
    axes[0].set_ylim(0, 1.02)
    axes[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    for each, title in zip(
        axes, ("QPU occupancy", "Quantum time, s", "Mean queue time per job, s"), strict=True
    ):
        _finish(each, title, rows)
    for each in axes[1:]:
        each.set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    handles.append(Line2D([], [], color=MUTED, linestyle=EXPECTED))
    _legend(figure, handles, [*labels, "closed loop"])
    return figure


def totals(rows: list[ResultRow]) -> Figure:
    """Total time, shared and exclusive, on a log scale; one panel per alpha."""
    groups = _by_alpha(rows)
    figure, axes = _panels(len(groups), sharey=True)
    for number, (alpha, mine) in enumerate(groups):
        axis, colour = axes[number], hue(number)
        _band(axis, mine, lambda row: row.total, colour, "shared")
        _expected(axis, mine, lambda row: row.loop.total(row.replicas), colour)
        numbers = [row.replicas for row in mine]
        axis.plot(numbers, [row.exclusive for row in mine], color=INK, linestyle=":")
        _finish(axis, f"Total time, s, α = {alpha:g}", rows)
    _logarithmic(axes[0])
    handles = [
        Line2D([], [], color=MUTED),
        Line2D([], [], color=MUTED, linestyle=EXPECTED),
        Line2D([], [], color=INK, linestyle=":"),
    ]
    _legend(figure, handles, ["shared", "closed loop", "exclusive: N × one job"])
    return figure


def violins(rows: list[ResultRow]) -> Figure:
    """Run times of the jobs as violins, with a dot for each job; one panel per alpha."""
    groups = _by_alpha(rows)
    figure, axes = _panels(len(groups), sharey=True)
    for number, (alpha, mine) in enumerate(groups):
        axis, colour = axes[number], hue(number)
        numbers = [row.replicas for row in mine]
        wide = [row for row in mine if len(set(row.runtimes)) >= FEWEST]
        if wide:
            made: Any = axis.violinplot(
                [row.runtimes for row in wide],
                [row.replicas for row in wide],
                widths=0.9,
                showextrema=False,
            )
            for body in made["bodies"]:
                body.set(facecolor=colour, alpha=TINT)
        for row in mine:
            axis.plot([row.replicas] * len(row.runtimes), row.runtimes, ".", color=colour, ms=2.5)
        axis.plot(numbers, [row.exclusive for row in mine], color=INK, linestyle=":")
        axis.plot(numbers, [row.single for row in mine], color=INK, linestyle="--", linewidth=1)
        _finish(axis, f"Run times of the jobs, s, α = {alpha:g}", rows)
    _logarithmic(axes[0])
    handles = [Line2D([], [], color=INK, linestyle=style) for style in (":", "--")]
    _legend(figure, handles, ["exclusive: the last of N jobs", "one job alone"])
    return figure


def _by_alpha(rows: list[ResultRow]) -> list[tuple[float, list[ResultRow]]]:
    return [(alpha, list(some)) for alpha, some in groupby(rows, lambda row: row.alpha)]


def _panels(number: int, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, number, sharey=sharey, squeeze=False)
    return figure, list(grid[0])


def _band(
    axis: Axes, rows: list[ResultRow], what: Callable[[ResultRow], Spread], colour: str, label: str
) -> None:
    """Draw the means as a line, with a band of one standard deviation to either side."""
    numbers, spreads = [row.replicas for row in rows], [what(row) for row in rows]
    means = [each.mean for each in spreads]
    lower = [each.mean - each.sd for each in spreads]
    upper = [each.mean + each.sd for each in spreads]
    axis.fill_between(numbers, lower, upper, color=colour, alpha=TINT, linewidth=0)
    axis.plot(numbers, means, color=colour, marker="o", ms=3, label=label)


def _expected(
    axis: Axes, rows: list[ResultRow], what: Callable[[ResultRow], float], colour: str
) -> None:
    numbers, values = [row.replicas for row in rows], [what(row) for row in rows]
    axis.plot(numbers, values, color=colour, linestyle=EXPECTED, linewidth=1.2)


def _finish(axis: Axes, title: str, rows: list[ResultRow]) -> None:
    axis.set_title(title, fontsize=10, color=INK, loc="left")
    axis.set_xlabel("replicas", color=MUTED, fontsize=9)
    numbers = sorted({row.replicas for row in rows})
    axis.xaxis.set_major_locator(FixedLocator(numbers[:: 1 + len(numbers) // 9]))
    axis.tick_params(colors=MUTED, labelsize=8)
    axis.grid(axis="y", color=LINE, linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(LINE)


def _logarithmic(axis: Axes) -> None:
    """Set a log scale with readable ticks: 1, 2, 5, 10, 20."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, handles: Sequence[Artist], labels: list[str]) -> None:
    figure.legend(
        handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=9,
        labelcolor=MUTED,
    )  # fmt: skip


HEADINGS = (
    "α",
    "replicas",
    "occupancy",
    "expected",
    "total, s",
    "± s",
    "expected",
    "gain",
    "queue per job, s",
    "expected",
    "quantum, s",
)


def write_page(
    folder: Path, plan: SharingPlan, rows: list[ResultRow], figures: list[Drawn]
) -> Path:
    """Write `report.html`, a self-contained page."""
    sections = [
        PageSection(
            each.file.stem,
            each.title,
            picture(
                inline(each.figure, f"f{number}", each.words),
                each.words,
                each.title,
                [each.file.name],
            ),
        )
        for number, each in enumerate(figures)
    ]
    lines = [[Cell(text) for text in cells(row)] for row in rows]
    sections.append(PageSection("figures", "All figures", table("figures", HEADINGS, lines)))
    page = folder / "report.html"
    Page("Sharing one QPU", [sentence(rows)], sections, notes(plan, rows)).write(page)
    return page


def sentence(rows: list[ResultRow]) -> str:
    """State the greatest gain of sharing."""
    if not rows:
        return "Nothing is measured yet."
    best = max(rows, key=lambda row: row.gain)
    jobs = "1 job" if best.replicas == 1 else f"{best.replicas} jobs"
    return (
        f"With classical phases of {best.alpha:g} times the quantum ones, {jobs} that share the"
        f" QPU end {times(best.gain)} as fast as one after the other ({brief(best.total.mean)} s"
        f" against {brief(best.exclusive)} s), and the QPU works {percent(best.occupancy.mean)}"
        " of the time."
    )


def cells(row: ResultRow) -> list[str]:
    """Cells of one row of the table."""
    n = row.replicas
    return [
        f"{row.alpha:g}",
        f"{n}",
        percent(row.occupancy.mean),
        percent(row.loop.occupancy(n)),
        f"{row.total.mean:.2f}",
        f"{row.total.sd:.2f}",
        f"{row.loop.total(n):.2f}",
        times(row.gain),
        f"{row.queue.mean:.2f}",
        f"{row.loop.queue(n):.2f}",
        f"{row.quantum.mean:.2f}",
    ]


def notes(plan: SharingPlan, rows: list[ResultRow]) -> list[str]:
    """Say how the experiment was measured."""
    graph = ",".join(map(str, plan.clustered))
    place = "jobs of Slurm with a licence each" if plan.cluster == "slurm" else "threads"
    done = max((row.repetitions for row in rows), default=0)
    loops = {row.alpha: row.loop for row in rows}
    cycles = [
        f"α = {alpha:g}: a job alone repeats {loop.cycles:.0f} cycles of {1000 * loop.quantum:.1f}"
        f" ms on the QPU and {1000 * loop.classical:.1f} ms beside it, so up to"
        f" {loop.knee:.1f} jobs fit without a queue."
        for alpha, loop in loops.items()
    ]
    return [
        f"Each replica colours the same clustered graph ({graph}) with the step {plan.sets}, as"
        f" {place}; {done} repetitions, bands of one standard deviation.",
        "After each task a replica sleeps α times as long as the QPU took. Replicas and the"
        " emulated QPU mostly wait; on a computer that is busy otherwise, they fall short of the"
        " prediction.",
        "The closed loop is the prediction for jobs of equal cycles on a QPU that serves first"
        " come, first served; its cycle is measured with one replica.",
        *cycles,
    ]
