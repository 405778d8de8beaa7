"""The notebooks of the examples, executed as Jupyter does, where an event loop is running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[3] / "examples"


def executed(name: str, folder: Path) -> list[list[Any]]:
    """The outputs of each cell with code."""
    book = nbformat.read(EXAMPLES / name, as_version=4)
    client = NotebookClient(book, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return [cell.outputs for cell in book.cells if cell.cell_type == "code"]


def shown(outputs: list[Any], kind: str) -> str:
    return "".join(each["data"].get(kind, "") for each in outputs if "data" in each)


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
    assert shown(value, "text/plain").startswith("[")
    assert "done" in shown(runs, "text/plain")


def test_strategies_compared(here: Path) -> None:
    *_, compared, table, session = executed("strategies.ipynb", here)
    assert shown(compared, "text/html").count("<svg") == 2
    assert "('elastic', 1): 2160" in shown(table, "text/plain")
    assert "<svg" in shown(session, "text/html")
