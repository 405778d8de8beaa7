"""The reproduction as one self-contained page, and the same as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from qtide.experiments.machine import sentence
from qtide.experiments.reproduction.pictures import drawn
from qtide.experiments.reproduction.result import (
    RULES,
    ItemResult,
    Statement,
    Value,
    markdown_table,
    read_results,
)
from qtide.interfaces.report.page import Page, PageSection, bullets, hint, inline, picture, table
from qtide.interfaces.report.table import NOTHING, Cell

GLANCE = ("what", "verdict", "item")
HEADINGS = ("what", "unit", "published", "here", "twin", "here / published")
NO_MORE = 0.005
"""What is shown as nothing."""
TITLE = "What was published, what we measured"
MEANING = "What the verdicts mean; ± is a standard deviation if published, a 95 % interval if ours:"


def row(value: Value, *, virtual: bool = False) -> list[str]:
    """Return the cells of a value; a dash where there is nothing."""
    mean, ratio = value.mean, value.ratio
    ours, twin = number(mean.mean, mean.half) if mean else NOTHING, number(value.twin)
    if virtual and mean:  # nothing was measured here
        ours, twin = NOTHING, ours
    return [
        value.what,
        value.unit,
        number(value.published, value.spread),
        ours,
        twin,
        NOTHING if ratio is None else f"{ratio:.2f}",
    ]


def _columns(found: ItemResult) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of an item, without columns that have nothing."""
    rows = [row(value, virtual=found.virtual) for value in found.values]
    kept = [at for at in range(len(HEADINGS)) if any(line[at] != NOTHING for line in rows)]
    return [HEADINGS[at] for at in kept], [[line[at] for at in kept] for line in rows]


def number(value: float | None, spread: float | None = None) -> str:
    """Show three or four digits, and a spread with as many decimals."""
    if value is None:
        return NOTHING
    size = abs(value)
    digits = 0 if size >= 100 or size < NO_MORE else 1 if size >= 10 else 2
    text = f"{value:z,.{digits}f}"
    return f"{text} ± {spread:,.{digits}f}" if spread and spread >= NO_MORE else text


def markdown(data: dict[str, Any]) -> str:
    """Return the whole page as Markdown."""
    results = list(read_results(data))
    rules = "".join(f"- **{verdict}**: {rule}\n" for verdict, rule in RULES.items())
    parts = [f"# {TITLE}\n", f"{made_by(data)}\n", _glance(results), f"{MEANING}\n", rules]
    for each in results:
        parts.append(f"## {each.title}\n\n*{each.source}.* **{each.verdict}**: {each.why}.\n")
        if each.values:
            parts.append(markdown_table(*_columns(each)))
        said = [
            f"- {'holds' if one.holds else 'does not hold'}: {one.words}" for one in _said(each)
        ]
        parts.append("\n".join([*said, *(f"- {note}" for note in each.notes)]) + "\n")
    return "\n".join(parts)


def _glance(results: Sequence[ItemResult]) -> str:
    rows = [[f"[{each.title}](#{slug(each.title)})", each.verdict, each.name] for each in results]
    return markdown_table(GLANCE, rows)


def slug(title: str) -> str:
    """Return the anchor of a heading, as Markdown makes it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _said(found: ItemResult) -> Iterator[Statement]:
    yield from found.statements
    yield from found.advances


def made_by(data: dict[str, Any]) -> str:
    """Say by which command, when and where the data was made."""
    return sentence(
        data["made"], f"qtide reproduce --{'quick' if data['made']['quick'] else 'full'}"
    )


def write_page(folder: Path, data: dict[str, Any]) -> Path:
    """Write `reproduction.html`."""
    results, quick = list(read_results(data)), bool(data["made"]["quick"])
    rows = [
        [Cell(each.title, to=each.name), Cell(each.verdict), Cell(each.name)] for each in results
    ]
    glance = table("glance", GLANCE, rows) + hint(MEANING)
    glance += bullets([f"{verdict}: {rule}" for verdict, rule in RULES.items()])
    sections = [PageSection("glance", "At a glance", glance)]
    sections += [PageSection(each.name, each.title, _body(folder, each, quick)) for each in results]
    page = folder / "reproduction.html"
    Page(TITLE, [made_by(data).replace("`", "")], sections, []).write(page)
    return page


def _body(folder: Path, found: ItemResult, quick: bool) -> str:
    """Return an item's section: verdict, pictures, numbers, statements, notes and runs."""
    body = hint(f"{found.source}.") if found.source else ""
    body += f"<p><strong>{found.verdict}</strong>: {escape(found.why)}.</p>"
    for at, (figure, words) in enumerate(drawn(folder, found, quick=quick)):
        body += picture(inline(figure, f"{found.name}-{at}", words), words, found.title)
    if found.values:
        headings, rows = _columns(found)
        body += table(found.name, headings, [[Cell(text) for text in line] for line in rows])
    said = [f"{'Holds' if one.holds else 'Does not hold'}: {one.words}." for one in _said(found)]
    body += bullets([*said, *found.notes])
    runs = sorted({name for value in found.values for name in value.runs})
    links = "".join(f'<li><a href="{quote(name)}/">{escape(name)}</a></li>' for name in runs)
    told = "The folders of its runs, with their ledgers"
    return body + (f"<details><summary>{told}</summary><ul>{links}</ul></details>" if runs else "")
