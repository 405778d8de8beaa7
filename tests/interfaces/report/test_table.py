from io import StringIO

import pytest
from rich.console import Console

from qtide.core.metrics import JobTime, Metrics
from qtide.interfaces.report.table import TableRow, cells, headings, rich_table


def row(strategy: str, jobs: int, total: float, held: float) -> TableRow:
    return TableRow(strategy, jobs, Metrics((JobTime("a", 0, total, total),), total, held, 50))


ROWS = [
    row("static", 1, 1057.84, 3000),
    row("elastic", 1, 1057.82, 600),
    row("static", 2, 2000, 8000),
    row("elastic", 2, 1100, 1200),
]


def rendered(rows: list[TableRow], width: int) -> str:
    console = Console(file=StringIO(), width=width, force_terminal=True)
    with console.capture() as capture:
        console.print(rich_table(rows))
    return capture.get()


def texts(rows: list[TableRow], relative: bool = False) -> list[list[str]]:
    return [[cell.text for cell in line] for line in cells(rows, relative)]


def best(title: str) -> list[bool]:
    return [line[headings(ROWS).index(title)].best for line in cells(ROWS)]


def test_numbers_are_grouped_and_shares_are_per_cent() -> None:
    shown = dict(zip(headings(ROWS), texts(ROWS)[0], strict=True))
    assert (shown["strategy"], shown["jobs"], shown["total s"]) == ("static", "1", "1,057.8")
    assert (shown["held node-s"], shown["busy / held"]) == ("3,000.0", "1.7%")


def test_the_best_is_found_among_as_many_jobs() -> None:
    assert best("held node-s") == [False, True, False, True]


def test_what_reads_equal_is_no_merit() -> None:
    assert best("total s") == [False, False, False, True]


def test_the_work_itself_is_no_merit() -> None:
    assert not any(best("busy node-s"))


def test_relative_columns_compare_with_static_of_as_many_jobs() -> None:
    walls = [line[-2:] for line in texts(ROWS, relative=True)]
    assert walls == [["1.00×", "1.00×"], ["1.00×", "0.20×"], ["1.00×", "1.00×"], ["0.55×", "0.15×"]]


def test_without_static_nothing_is_relative() -> None:
    assert texts(ROWS[1:2], relative=True)[0][-2:] == ["–", "–"]


def test_no_rows_have_no_cells() -> None:
    assert texts([]) == []


def test_the_terminal_shows_all_figures_in_80_columns() -> None:
    text = rendered(ROWS, 80)
    assert "…" not in text
    assert all(figure in text for figure in ("1,057.8", "2,000.0", "8,000.0", "elastic"))


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/]"])
def test_a_label_is_no_markup(name: str) -> None:
    assert name in rendered([row(name, 1, 1, 1)], 120)
