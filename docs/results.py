"""Writes the measured numbers of the documentation from their data: python docs/results.py FOLDER

FOLDER is that of `qtide reproduce` or of `qtide experiment sharing`; its data is copied to docs/.
Without a folder, the pages are only written again. A test fails if a page differs from its data.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile
from typing import Any

from qtide.experiments.machine import sentence
from qtide.experiments.reproduction.reproduction_page import made_by, markdown
from qtide.experiments.reproduction.result import Value, markdown_table, read_results

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPRODUCTION, SHARING = DOCS / "reproduction.json", DOCS / "sharing.json"
BLOCK = "<!-- made by docs/results.py: {} -->"
END = "<!-- end -->"
STRATEGIES = ("static", "malleable", "workflow", "elastic")


def pages() -> dict[Path, str]:
    """Return the text of every page that shows measured numbers."""
    data = json.loads(REPRODUCTION.read_text())
    found = {DOCS / "reproduction.md": markdown(data)}
    for page, name, block, source in BLOCKS:
        if source.exists():
            found[page] = replaced(page, name, block(json.loads(source.read_text())))
    return found


def replaced(page: Path, name: str, text: str) -> str:
    """Return a page with another text in one of its blocks."""
    start = BLOCK.format(name)
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(END)}", re.DOTALL)
    whole, number = pattern.subn(lambda _: f"{start}\n\n{text}\n{END}", page.read_text())
    assert number == 1, f"{page} has {number} blocks {name}"
    return whole


def two_jobs(data: dict[str, Any]) -> str:
    """Two jobs with quantum phases of two minutes, for the README."""
    rows = [
        [f"**{name}**" if name == "elastic" else name, *cells(data, "table-1", name, 2)]
        for name in STRATEGIES
    ]
    wall, held = "until both jobs are done, s", "node-seconds held"
    heads = ("strategy", f"{wall}: published", "here", f"{held}: published", "here")
    return f"{markdown_table(heads, rows)}\n{made_by(data)}\n"


def all_cells(data: dict[str, Any]) -> str:
    """Tables 1 and 2 side by side."""
    rows = [
        [length, f"{jobs}", name, *cells(data, table, name, jobs)]
        for table, length in (("table-1", "2 min"), ("table-2", "short"))
        for jobs in (1, 2)
        for name in STRATEGIES
    ]
    heads = ("quantum phases", "jobs", "strategy", "wall s: published", "here")
    return markdown_table((*heads, "node-s: published", "here"), rows)


def cells(data: dict[str, Any], table: str, strategy: str, jobs: int) -> list[str]:
    """Wall time and node-seconds, published and here."""
    (item,) = (each for each in read_results(data) if each.name == table)
    start = f"{strategy}, {jobs} job"
    mine = [each for each in item.values if each.what.startswith(start)]
    return [text for value in mine for text in (number(value.published), number(ours(value)))]


def ours(value: Value) -> float | None:
    """What was measured; nothing if only the twin has a number."""
    return value.mean.mean if value.mean else None


def number(value: float | None) -> str:
    """Print whole seconds, or a dash."""
    return "–" if value is None else f"{value:,.0f}"


def shared(data: dict[str, Any]) -> str:
    """Occupancy, total time and gain by number of replicas, for some of them."""
    chosen = [row for row in data["rows"] if row["replicas"] in (1, 2, 4, 8, 16)]
    rows = [
        [
            f"{row['alpha']:g}",
            f"{row['replicas']}",
            f"{100 * row['occupancy']['mean']:.1f} %",
            f"{row['total']['mean']:.1f} ± {row['total']['sd']:.1f}",
            f"{row['expected']['total']:.1f}",
            f"{row['gain']:.2f} ×",
            f"{row['queue']['mean']:.1f}",
        ]
        for row in chosen
    ]
    heads = ("α", "N", "QPU busy", "total, s", "closed loop, s", "gain", "queue per job, s")
    times = min(row["repetitions"] for row in data["rows"])
    made = sentence(data["made"], "qtide experiment sharing")
    note = data["made"].get("note", "")
    return (
        f"{markdown_table(heads, rows)}\nMeans of {times} repetitions. {made} {note}".rstrip()
        + "\n"
    )


Block = Callable[[dict[str, Any]], str]
BLOCKS: tuple[tuple[Path, str, Block, Path], ...] = (
    (ROOT / "README.md", "two jobs", two_jobs, REPRODUCTION),
    (DOCS / "slurm.md", "tables 1 and 2", all_cells, REPRODUCTION),
    (DOCS / "sharing.md", "sharing", shared, SHARING),
)
"""Page, block, what writes it, and from which data."""


def keep(source: Path, target: Path) -> None:
    """Copy data without the places of its machine."""
    data = json.loads(source.read_text())
    for place in ("folder", "page"):
        data.pop(place, None)
    target.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def main(folder: Path | None) -> None:
    """Copy the data of a folder, if one is given, and write all pages."""
    if folder is not None and (folder / REPRODUCTION.name).exists():
        keep(folder / REPRODUCTION.name, REPRODUCTION)
    elif folder is not None:
        keep(folder / "results.json", SHARING)
        for name in ("lines", "totals"):
            copyfile(folder / f"{name}.png", DOCS / "pictures" / f"sharing-{name}.png")
    for page, text in pages().items():
        page.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
