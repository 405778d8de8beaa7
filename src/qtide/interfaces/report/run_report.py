"""The report of runs: a page with figures, timelines and decisions, and picture files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from qtide.core.metrics import Metrics, Panel
from qtide.interfaces.report import timeline
from qtide.interfaces.report.decisions import decisions, headline, remarks
from qtide.interfaces.report.page import (
    Page,
    PageSection,
    hint,
    inline,
    notebook_element,
    picture,
    safe_inline,
    table,
)
from qtide.interfaces.report.table import BASE, TableRow, brief, cells, headings

SHOWN = 400
"""Maximum number of decisions listed per strategy."""
LEGEND = (
    "Each row is a node, the QPU or the queue. Each colour is a job: pale while the job holds the "
    "row, striped upright while the node starts, solid while it works."
)
MEANINGS = (
    "Held is what the jobs had reserved; start is the part in which nodes started their processes "
    "and loaded modules; busy is the part in which they worked. Queue is the time that requests "
    "for nodes or for the QPU waited."
)
BEST = "The best value for each number of jobs is bold, with a dot. "


@dataclass(frozen=True, slots=True)
class Group:
    """The strategies that ran with one number of concurrent jobs."""

    jobs: int
    panels: tuple[Panel, ...]
    heading: str = ""
    """Overrides the heading derived from the number of jobs."""

    @property
    def name(self) -> str:
        """File name of the group's pictures, without suffix."""
        return f"timeline-{self.jobs}-jobs"

    @property
    def title(self) -> str:
        """Heading of the group's section."""
        return self.heading or ("One job" if self.jobs == 1 else f"{self.jobs} jobs at once")


@dataclass(frozen=True, slots=True)
class Report:
    """The files of a report."""

    page: Path
    pictures: tuple[Path, ...]


def write_report(
    folder: Path,
    title: str,
    groups: list[Group],
    notes: Sequence[str],
    findings: Sequence[str] = (),
) -> Report:
    """Write `report.html` and the timelines; each group has a different number of jobs.

    The page begins with the findings or, without any, with a sentence about the last group.
    """
    shown = sorted((group for group in groups if group.panels), key=lambda group: group.jobs)
    if len({group.jobs for group in shown}) < len(shown):
        raise ValueError("a report has one group for each number of jobs, but two have the same")
    folder.mkdir(parents=True, exist_ok=True)
    pictures: list[Path] = []
    sections = _figures(shown)
    for group in shown:
        figure = timeline.draw(group.panels)
        copies = [folder / f"{group.name}.{kind}" for kind in ("png", "svg")]
        for path in copies:
            timeline.save(figure, path)
        pictures += copies
        in_lead = not findings and group is shown[-1]
        body = "" if in_lead else f"<p>{escape(sentence(group))}</p>\n"
        svg = inline(figure, f"g{group.jobs}", description(group))
        label = f"Timeline, {group.title.lower()}"
        body += picture(svg, LEGEND, label, [path.name for path in copies])
        body += "".join(map(_decisions, group.panels))
        sections.append(PageSection(group.name, group.title, body))
    lead = findings or [sentence(shown[-1]) if shown else "Nothing to report: no job has run."]
    page = folder / "report.html"
    Page(title, lead, sections, notes).write(page)
    return Report(page, tuple(pictures))


def embedded(title: str, groups: Sequence[Group], lines: Sequence[str], name: str) -> str:
    """Return the report as an HTML element for a notebook; `name` makes its ids unique."""
    pictures = (
        safe_inline(timeline.draw(group.panels), f"{name}-{number}", description(group))
        for number, group in enumerate(groups)
    )
    return notebook_element(title, f"{_table(_rows(groups))}{''.join(pictures)}", lines)


def sentence(group: Group) -> str:
    """Summarise the group's results in a sentence."""
    base = next((p.metrics for p in group.panels if p.strategy == BASE), Metrics())
    totals = {panel.strategy: panel.metrics.total for panel in group.panels}
    helds = {panel.strategy: panel.metrics.nodes_held for panel in group.panels}
    jobs = "With one job" if group.jobs == 1 else f"With {group.jobs} jobs at once"
    time = f"{brief(min(totals.values()))} s{_change(totals, base.total)}"
    nodes = f"{brief(min(helds.values()))} node-seconds{_change(helds, base.nodes_held)}"
    if len(totals) == 1:
        return f"{jobs}, {next(iter(totals))} took {time} and held {nodes}."
    first = f"{_least(totals, 'finished first, after', 'took')} {time}"
    return f"{jobs}, {first}; {_least(helds, 'held the fewest nodes over time,', 'held')} {nodes}."


def _least(values: dict[str, float], best: str, same: str) -> str:
    """Name the strategies with the lowest value, then `best`, or `same` if all are equal."""
    least = brief(min(values.values()))
    names = [name for name, value in values.items() if brief(value) == least]
    if len(names) == 1 < len(values):
        return f"{names[0]} {best}"
    if len(names) < len(values):
        return f"{', '.join(names[:-1])} and {names[-1]} {best}"
    return f"{'all strategies' if len(names) > 1 else names[0]} {same}"


def _change(values: dict[str, float], base: float) -> str:
    """State how far the lowest value is below static's; empty below half a per cent."""
    part = min(values.values()) / base if base > 0 else 1.0
    less = f"{1 - part:.0%}" if part > 0.005 or part == 0 else "over 99%"
    return f" ({less} less than {BASE})" if part < 0.995 else ""


def description(group: Group) -> str:
    """Describe the picture for screen readers."""
    totals = (f"{p.strategy} takes {brief(p.metrics.total)} seconds" for p in group.panels)
    return f"Timeline of nodes and QPU, {group.title.lower()}: {', '.join(totals)}."


def _figures(groups: Sequence[Group]) -> list[PageSection]:
    """Return the section with all figures; a single run is not compared."""
    rows = _rows(groups)
    if not rows:
        return []
    several = len(rows) > 1
    body = _table(rows) + hint((BEST if several else "") + MEANINGS)
    body += '\n<p class="hint narrow">Tables and pictures scroll sideways.</p>'
    return [PageSection("figures", "Comparison" if several else "Figures", body)]


def _rows(groups: Sequence[Group]) -> list[TableRow]:
    return [TableRow(p.strategy, group.jobs, p.metrics) for group in groups for p in group.panels]


def _table(rows: Sequence[TableRow]) -> str:
    relative = len(rows) > 1 and any(row.strategy == BASE for row in rows)
    lines = zip(rows, cells(rows, relative), strict=True)
    bodies = [
        [line for _, line in each] for _, each in groupby(lines, key=lambda line: line[0].jobs)
    ]
    return table("figures", headings(rows, relative), *bodies)


def _decisions(panel: Panel) -> str:
    """Return a strategy's decisions as a collapsed list."""
    if not panel.notes:
        return ""
    began = min(span.start for span in panel.intervals)
    items = [
        f"<li>{escape(f'{job}, {brief(each.at - began)} s: {each.text}')}</li>"
        for job, notes in groupby(panel.notes, key=lambda note: note.job)
        for each in decisions(notes)
    ]
    more = f"<p>{len(items) - SHOWN:,} more are in the ledgers.</p>" if len(items) > SHOWN else ""
    costs = "".join(f"<p>{escape(each)}</p>" for each in remarks(items))
    title = f"{panel.strategy}: {headline(panel.strategy)}"
    return f"""<details><summary>{escape(title)}
({len(items):,})</summary>
{costs}
<ol class="decisions">
{chr(10).join(items[:SHOWN])}
</ol>
{more}
</details>"""
