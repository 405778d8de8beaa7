"""The report: one self-contained page, and its pictures as files to cite."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from io import StringIO
from itertools import groupby
from pathlib import Path
from string import Template
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from qtide.core.files import write_whole
from qtide.core.metrics import Metrics, Panel
from qtide.interfaces.report import timeline
from qtide.interfaces.report.decisions import decisions, headline, remarks
from qtide.interfaces.report.table import BASE, Cell, TableRow, brief, cells, headings
from qtide.interfaces.report.timeline import HUES, INK, LINE, MUTED, STYLE, TINT, TRACK

SVG = "http://www.w3.org/2000/svg"
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    TRACK: "var(--track)",
    f"opacity: {TINT}": "opacity: var(--tint)",
} | {hue: f"var(--hue-{index})" for index, hue in enumerate(HUES)}
"""What the page's style decides, so that the picture is legible in light and dark mode."""

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def inline(figure: Figure, name: str, description: str) -> str:
    """The figure as an SVG element; `name` prefixes its ids, screen readers read `description`."""
    root = ElementTree.fromstring(_text(figure))
    _drop_globals(root)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _adapt(key, value, name))
    for size in ("width", "height"):
        del root.attrib[size]
    root.attrib |= {"role": "img", "aria-label": description}
    return ElementTree.tostring(root, encoding="unicode")


def _drop_globals(root: ElementTree.Element) -> None:
    """Remove what would affect the rest of the page: the metadata and the style sheet."""
    for each in list(root):
        if each.tag == f"{{{SVG}}}metadata" or each.find(f"{{{SVG}}}style") is not None:
            root.remove(each)


def _text(figure: Figure) -> str:
    buffer = StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    return buffer.getvalue()


def _adapt(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        for fixed, variable in VARIABLES.items():
            value = value.replace(fixed, variable)
    return re.sub(r"^#|(?<=url\()#", f"#{name}-", value)


SHOWN = 400
"""How many decisions of a strategy a page lists."""


@dataclass(frozen=True, slots=True)
class Group:
    """The strategies that ran with one number of jobs at once."""

    jobs: int
    panels: tuple[Panel, ...]
    heading: str = ""
    """In place of the number of jobs."""

    @property
    def name(self) -> str:
        """The name of its pictures."""
        return f"timeline-{self.jobs}-jobs"

    @property
    def title(self) -> str:
        """Its heading."""
        return self.heading or ("One job" if self.jobs == 1 else f"{self.jobs} jobs at once")


@dataclass(frozen=True, slots=True)
class Report:
    """Where a report was written."""

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

    The page begins with the findings, by default with what the last group shows.
    """
    shown = sorted((group for group in groups if group.panels), key=lambda group: group.jobs)
    if len({group.jobs for group in shown}) < len(shown):
        raise ValueError("a report has one group for each number of jobs, but two have the same")
    folder.mkdir(parents=True, exist_ok=True)
    pictures: list[Path] = []
    sections: list[str] = []
    for group in shown:
        figure = timeline.draw(group.panels)
        for path in (folder / f"{group.name}.png", folder / f"{group.name}.svg"):
            timeline.save(figure, path)
            pictures.append(path)
        picture = inline(figure, f"g{group.jobs}", description(group))
        sections.append(_section(group, picture, is_headline=not findings and group is shown[-1]))
    page = folder / "report.html"
    lead = findings or [sentence(shown[-1]) if shown else "Nothing to report: no job has run."]
    write_whole(page, _page(title, lead, shown, sections, notes).encode(errors="replace"))
    return Report(page, tuple(pictures))


def sentence(group: Group) -> str:
    """What the group shows, in a sentence."""
    base = next((p.metrics for p in group.panels if p.strategy == BASE), Metrics())
    totals = {panel.strategy: panel.metrics.total for panel in group.panels}
    helds = {panel.strategy: panel.metrics.nodes_held for panel in group.panels}
    jobs = "With one job" if group.jobs == 1 else f"With {group.jobs} jobs at once"
    time = f"{brief(min(totals.values()))} s{_change(totals, base.total)}"
    nodes = f"{brief(min(helds.values()))} node-seconds{_change(helds, base.nodes_held)}"
    first = f"{_least(totals, 'finished first, after', 'took')} {time}"
    return f"{jobs}, {first}; {_least(helds, 'held the fewest nodes over time,', 'held')} {nodes}."


def _least(values: dict[str, float], best: str, same: str) -> str:
    """Which strategies have the least, and what that means; nothing if all are equal."""
    least = brief(min(values.values()))
    names = [name for name, value in values.items() if brief(value) == least]
    if len(names) == 1 < len(values):
        return f"{names[0]} {best}"
    if len(names) < len(values):
        return f"{', '.join(names[:-1])} and {names[-1]} {best}"
    return f"{'all strategies' if len(names) > 1 else names[0]} {same}"


def _change(values: dict[str, float], base: float) -> str:
    """How far the least is below static; empty below half a per cent."""
    less = round(100 * (1 - min(values.values()) / base)) if base > 0 else 0
    return f" ({less}% less than {BASE})" if less > 0 else ""


def _page(
    title: str, lead: Sequence[str], groups: list[Group], sections: list[str], notes: Sequence[str]
) -> str:
    return Template(resource("report.html")).substitute(
        title=escape(title),
        css=resource("report.css"),
        summary="\n".join(f'<p class="lead">{escape(each)}</p>' for each in lead),
        table=table_of([TableRow(p.strategy, g.jobs, p.metrics) for g in groups for p in g.panels]),
        sections="\n".join(sections),
        notes=_notes(notes),
    )


def resource(name: str) -> str:
    """A file of this package."""
    return files("qtide.interfaces.report").joinpath(name).read_text(encoding="utf-8")


def _section(group: Group, picture: str, is_headline: bool) -> str:
    """A group's sentence and picture; the headline's sentence is at the top of the page."""
    links = ", ".join(
        f'<a href="{group.name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg")
    )
    label = escape(f"Timeline, {group.title.lower()}")
    return f"""<section aria-labelledby="{group.name}">
<h2 id="{group.name}">{escape(group.title)}</h2>
{"" if is_headline else f"<p>{escape(sentence(group))}</p>"}
<figure>
<div class="scroll" role="region" aria-label="{label}" tabindex="0">
{picture}
</div>
<figcaption>Each row is a node, the QPU or the queue; a colour is a job, pale while it holds the
row, striped upright while its node starts, full while it works. The same picture as
{links}.</figcaption>
</figure>
{"".join(map(_decisions, group.panels))}
</section>"""


def _decisions(panel: Panel) -> str:
    """What a strategy decided, folded away."""
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


def description(group: Group) -> str:
    """The picture in words, for screen readers."""
    totals = (f"{p.strategy} takes {brief(p.metrics.total)} seconds" for p in group.panels)
    return f"Timeline of nodes and QPU, {group.title.lower()}: {', '.join(totals)}."


def table_of(rows: Sequence[TableRow]) -> str:
    """The figures as an element of a page."""
    if not rows:
        return ""
    relative = len(rows) > 1 and any(row.strategy == BASE for row in rows)
    heads = "".join(f'<th scope="col">{_unbroken(title)}</th>' for title in headings(relative))
    lines = zip(rows, cells(rows, relative), strict=True)
    bodies = "\n".join(
        "<tbody>\n" + "\n".join(_row(line) for _, line in each) + "\n</tbody>"
        for _, each in groupby(lines, key=lambda line: line[0].jobs)
    )
    return f"""<div class="scroll" role="region" aria-labelledby="comparison" tabindex="0">
<table>
<thead><tr>{heads}</tr></thead>
{bodies}
</table>
</div>"""


def _unbroken(title: str) -> str:
    """A heading may break at its spaces, not within node-s."""
    return escape(title).replace("-", "\N{NON-BREAKING HYPHEN}")


def _row(line: Sequence[Cell]) -> str:
    head, *rest = line
    datas = "".join(map(_data, rest))
    return f'<tr><th scope="row">{escape(head.text)}</th>{datas}</tr>'


def _data(cell: Cell) -> str:
    text = escape(cell.text)
    return f'<td class="best"><strong>{text}</strong></td>' if cell.best else f"<td>{text}</td>"


def _notes(notes: Sequence[str]) -> str:
    items = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    heading = '<section aria-labelledby="notes">\n<h2 id="notes">Notes</h2>'
    return f"{heading}\n<ul>\n{items}\n</ul>\n</section>" if notes else ""


COLOURS = re.compile(r":root \{(.*?)\n *\}", re.DOTALL)
"""The colours of our own page: first the light ones, then the dark ones."""
NOTEBOOK_STYLE = """
.qtide {{{light}}}
@media (prefers-color-scheme: dark) {{ .qtide {{{dark}}} }}
[data-jp-theme-light="true"] .qtide {{{light}}}
[data-jp-theme-light="false"] .qtide {{{dark}}}
.qtide {{ background: var(--page); color: var(--ink); padding: .5rem; overflow-x: auto; }}
.qtide table {{ border-collapse: collapse; }}
.qtide th, .qtide td {{ padding: .2rem .6rem; text-align: right; color: var(--ink);
  background: var(--page); }}
.qtide thead th {{ border-bottom: 1px solid var(--muted); color: var(--muted); }}
.qtide td.best {{ background: var(--best-back); color: var(--best); }}
.qtide svg {{ display: block; width: 100%; min-width: 44rem; height: auto; }}
"""


def embedded(title: str, groups: Sequence[Group], lines: Sequence[str], name: str) -> str:
    """An element with its own style; `name` makes its ids unique on the page."""
    rows = [
        TableRow(each.strategy, group.jobs, each.metrics)
        for group in groups
        for each in group.panels
    ]
    pictures = (
        inline(timeline.draw(group.panels), f"{name}-{number}", description(group))
        for number, group in enumerate(groups)
    )
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    parts = (f"<h4>{escape(title)}</h4>", table_of(rows), *pictures, said)
    return f'<style>{_style()}</style>\n<div class="qtide">\n{"".join(parts)}\n</div>'


def _style() -> str:
    light, dark = (found.strip() for found in COLOURS.findall(resource("report.css"))[:2])
    return NOTEBOOK_STYLE.format(light=light, dark=dark)
