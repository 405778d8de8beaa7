"""The reproduction as one self-contained page, and the same as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qtide.experiments.machine import sentence
from qtide.experiments.reproduction.pictures import drawn
from qtide.experiments.reproduction.result import (
    RULE,
    ItemResult,
    Statement,
    Value,
    markdown_table,
    read_results,
)
from qtide.interfaces.report.page import Page, PageSection, bullets, hint, inline, picture, table
from qtide.interfaces.report.table import Cell, brief

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
    parts = [f"# {TITLE}\n", f"{made_by(data)}\n", f"{RULE}\n", _glance(results)]
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
    rows = [[f"[{each.title}](#{slug(each.title)})", each.name, each.verdict] for each in results]
    return markdown_table(("what", "item", "verdict"), rows)


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
    results = list(read_results(data))
    rows = [[Cell(each.title), Cell(each.name), Cell(each.verdict)] for each in results]
    glance = table("glance", ("what", "item", "verdict"), rows)
    sections = [PageSection("glance", "At a glance", glance)]
    for each in results:
        body = hint(f"{each.source}. {each.verdict}: {each.why}.")
        for number, (figure, words) in enumerate(drawn(folder, each, quick=data["made"]["quick"])):
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
    Page(TITLE, [made_by(data).replace("`", "")], sections, [RULE]).write(page)
    return page
