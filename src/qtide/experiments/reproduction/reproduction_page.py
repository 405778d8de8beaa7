"""The reproduction as one self-contained page, and the same as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from qtide.core.ledger import Interval
from qtide.core.metrics import Panel
from qtide.core.metrics import measure as measure_spans
from qtide.experiments.reproduction.result import (
    RULE,
    ItemResult,
    Statement,
    Value,
    markdown_table,
    read_results,
)
from qtide.experiments.reproduction.schedules import (
    OURS,
    PUBLISHED,
    RATIOS,
    SHARES,
    WAITS,
    shared_loop,
    sharing_plan,
    strategy_chart,
)
from qtide.experiments.sharing.experiment import measure
from qtide.experiments.sharing.figures import lines, totals, violins
from qtide.interfaces.report import timeline
from qtide.interfaces.report.page import (
    LINE,
    MUTED,
    STYLE,
    Page,
    PageSection,
    bullets,
    hint,
    hue,
    inline,
    picture,
    table,
)
from qtide.interfaces.report.table import Cell, brief
from qtide.runs.comparison import read_cases
from qtide.twin.simulation_page import map_figure

HEADINGS = ("what", "unit", "published", "here", "twin", "here / published")
TITLE = "What was published, what we measured"


def row(value: Value) -> list[str]:
    """Return the cells of a value; a dash where there is nothing."""
    mean, ratio = value.mean, value.ratio
    spread = f" ± {brief(value.spread)}" if value.spread else ""
    return [
        value.what,
        value.unit,
        "–" if value.published is None else f"{brief(value.published)}{spread}",
        "–" if mean is None else brief(mean.mean) + (f" ± {brief(mean.half)}" if mean.half else ""),
        "–" if value.twin is None else brief(value.twin),
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def markdown(data: dict[str, Any]) -> str:
    """Return the whole page as Markdown."""
    results = list(read_results(data))
    parts = [f"# {TITLE}\n", f"{_made(data)}\n", f"{RULE}\n", _glance(results)]
    for each in results:
        parts.append(f"## {each.title}\n\n*{each.source}.* **{each.verdict}**: {each.why}.\n")
        if each.values:
            parts.append(markdown_table(HEADINGS, [row(value) for value in each.values]))
        said = [
            f"- {'holds' if one.holds else 'does not hold'}: {one.words}" for one in _said(each)
        ]
        parts.append("\n".join([*said, *(f"- {note}" for note in each.notes)]) + "\n")
    return "\n".join(parts)


def _glance(results: Sequence[ItemResult]) -> str:
    rows = [[each.name, each.title, each.verdict] for each in results]
    return markdown_table(("item", "what", "verdict"), rows)


def _said(found: ItemResult) -> Iterator[Statement]:
    yield from found.statements
    yield from found.advances


def _made(data: dict[str, Any]) -> str:
    made = data["made"]
    how = "quick: few repetitions, scaled clocks" if made["quick"] else "full"
    return (
        f"Made by `qtide reproduce` on {made['date']} ({how}), on a machine with "
        f"{made['machine']} and a load of {made['load']:.1f}, with Python {made['python']} and "
        f"qtide {made['qtide']}."
    )


def write_page(folder: Path, data: dict[str, Any]) -> Path:
    """Write `reproduction.html`."""
    results = list(read_results(data))
    rows = [[Cell(each.name), Cell(each.title), Cell(each.verdict)] for each in results]
    sections = [
        PageSection("glance", "At a glance", table("glance", ("item", "what", "verdict"), rows))
    ]
    for each in results:
        body = hint(f"{each.source}. {each.verdict}: {each.why}.")
        for number, (figure, words) in enumerate(_drawn(folder, each, quick=data["made"]["quick"])):
            name = f"{each.name}-{number}"
            body += picture(inline(figure, name, words), words, each.title)
        cells = [[Cell(text) for text in row(value)] for value in each.values]
        if cells:
            body += table(each.name, HEADINGS, cells)
        said = [f"{'Holds' if one.holds else 'Does not hold'}: {one.words}." for one in _said(each)]
        folders = sorted({name for value in each.values for name in value.runs})
        said += each.notes
        if folders:
            said.append(f"Runs, with their ledgers: {', '.join(folders)}")
        sections.append(PageSection(each.name, each.title, body + bullets(said)))
    page = folder / "reproduction.html"
    Page(TITLE, [_made(data).replace("`", "")], sections, [RULE]).write(page)
    return page


def _drawn(folder: Path, found: ItemResult, *, quick: bool) -> Iterator[tuple[Figure, str]]:
    """Draw an item in its published form and in one that shows more."""
    if found.missing:
        return
    if found.name in ("table-1", "table-2"):
        words = "Wall time and node-seconds of each strategy: published, here, and by the twin."
        yield bars(found.values), words
    elif found.name == SHARES:
        rows = measure(sharing_plan(quick), folder / SHARES)
        for draw, words in (
            (lines, "Occupancy, quantum time and queue time by number of jobs (figure 7)."),
            (totals, "Total time, shared and exclusive (figure 8, d)."),
            (violins, "Run times of the jobs (figure 8, e)."),
        ):
            with matplotlib.rc_context(STYLE):
                yield draw(rows), words
    elif found.name == "figure-1":
        here = (0.93, 0.0)  # the published job: two minutes of 129 s classical
        for names, words in (
            (PUBLISHED, "The best of the published strategies, by granularity and wait."),
            ((*PUBLISHED, OURS), "The same with elastic."),
        ):
            yield map_figure(RATIOS, WAITS, strategy_chart(names), here), words
    elif found.name == "figures-2-3":
        loops = {"co-scheduling": shared_loop(1), "virtual QPUs": shared_loop(4)}
        yield (
            timeline.draw([panel(name, each.ledgers) for name, each in loops.items()]),
            ("Four jobs with the QPU to themselves in turn (figure 2), and with virtual QPUs (3)."),
        )
    elif found.name == "figure-9":
        panels = [
            case.panel()
            for strategy in (*PUBLISHED, OURS)
            for case in read_cases(folder / "table-1" / "1" / strategy)
            if case.jobs > 1
        ]
        if panels:
            yield held_over_time(panels), "Nodes held over time by two jobs, as published."
            yield timeline.draw(panels), "The same runs: what each node and the QPU did."


def panel(name: str, ledgers: Sequence[Sequence[Interval]]) -> Panel:
    """Return jobs in virtual time as a panel of a timeline."""
    spans = [span for each in ledgers for span in each]
    jobs = tuple(dict.fromkeys(span.job for span in spans))
    return Panel(name, jobs, spans, measure_spans(spans))


def bars(values: Sequence[Value]) -> Figure:
    """Draw published, measured and simulated values beside each other."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(STYLE):
        axes = figure.subplots(1, 2)
        for axis, unit in zip(axes, ("s", "node-s"), strict=True):
            shown = [each for each in values if each.unit == unit]
            kinds = (
                ("published", [each.published or 0.0 for each in shown]),
                ("here", [each.ours or 0.0 for each in shown]),
                ("twin", [each.twin or 0.0 for each in shown]),
            )
            for number, (label, heights) in enumerate(kinds):
                places = [place + 0.27 * (number - 1) for place in range(len(shown))]
                axis.bar(places, heights, 0.25, color=hue(number), label=label)
            names = [each.what.partition(":")[0].replace(", ", "\n") for each in shown]
            axis.set_xticks(range(len(shown)), names, fontsize=7, color=MUTED)
            axis.set_title(
                "wall time, s" if unit == "s" else "node-seconds", fontsize=10, loc="left"
            )
            axis.grid(axis="y", color=LINE, linewidth=0.6)
            axis.set_axisbelow(True)
        axes[0].legend(frameon=False, fontsize=8)
    return figure


def held_over_time(panels: Sequence[Panel]) -> Figure:
    """Draw the number of nodes that each job holds over time, one panel per strategy."""
    figure = Figure(figsize=(10.0, 1.5 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(STYLE):
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
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
            axis.set_title(panel.strategy, fontsize=9, loc="left")
            axis.tick_params(colors=MUTED, labelsize=8)
        axes[-1].set_xlabel("s", color=MUTED, fontsize=9)
    return figure
