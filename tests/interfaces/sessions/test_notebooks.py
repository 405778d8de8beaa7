"""The notebooks of the examples, executed as Jupyter does, where an event loop is running."""

from __future__ import annotations

from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

PNG = b"\x89PNG"
EXAMPLES = Path(__file__).parents[3] / "examples"


def executed(name: str, folder: Path) -> list[list[Any]]:
    """The outputs of each cell with code."""
    book = nbformat.read(EXAMPLES / name, as_version=4)
    client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [cell.outputs for cell in book.cells if cell.cell_type == "code"]


def shown(outputs: list[Any], kind: str) -> str:
    return "".join(each["data"].get(kind, "") for each in outputs if "data" in each)


class Untrusted(HTMLParser):
    """What JupyterLab leaves of the HTML of a notebook that it does not trust."""

    DROPPED = ("style", "script")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.text = ""
        self._open: list[tuple[str, bool]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        hidden = tag in self.DROPPED or "hidden" in dict(attrs)
        if tag == "img":
            self.images.append(dict(attrs)["src"] or "")
        else:
            self._open.append((tag, hidden))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not any(hidden for _, hidden in self._open):
            self.text += data


@pytest.mark.parametrize("name", ["first_program.ipynb", "strategies.ipynb"])
def test_a_notebook_is_stored_without_outputs(name: str) -> None:
    book = nbformat.read(EXAMPLES / name, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)


def test_the_first_program(here: Path) -> None:
    *_, run, value, runs = executed("first_program.ipynb", here)
    page = shown(run, "text/html")
    assert "9 phases" in page
    assert "<svg" in page
    assert 'data-jp-theme-light="false"' in page
    untrusted = Untrusted(page)
    assert [each[:22] for each in untrusted.images] == ["data:image/png;base64,"]
    assert b64decode(untrusted.images[0].partition(",")[2]).startswith(PNG)
    assert "strategy" in untrusted.text  # the table, but no label of the timeline
    assert "annealer" not in untrusted.text
    assert b64decode(shown(run, "image/png")).startswith(PNG)
    assert shown(value, "text/plain").startswith("[")
    assert "done" in shown(runs, "text/plain")


def test_strategies_compared(here: Path) -> None:
    *_, compared, table, session = executed("strategies.ipynb", here)
    assert shown(compared, "text/html").count("<svg") == 2
    assert "('elastic', 1): 2160" in shown(table, "text/plain")
    assert "<svg" in shown(session, "text/html")


WATCHED = """
from qtide import classical, program, task


def double(n: int) -> int:
    return 2 * n


@program
async def doubled(n: int = 1) -> list[int]:
    return await classical(task(double, n), task(double, n + 1))


mine = doubled.run(3, cluster="local:2")
"""


def test_a_run_is_drawn_while_it_is_watched(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(words) for words in (WATCHED, "mine.watch().state")]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told, watched = (shown(cell.outputs, "text/plain") for cell in book.cells)
    assert "1 phase" in told
    assert "is done" in watched
    assert "█ busy" in watched
