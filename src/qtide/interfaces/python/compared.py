"""Comparisons as Python objects: table and timelines of a program under several strategies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtide.interfaces.progress import progress
from qtide.interfaces.python.description import comparison_report
from qtide.interfaces.python.run import Run, shown
from qtide.runs.comparison import Case, ComparisonPlan, notes
from qtide.runs.folder import Call, reference
from qtide.runs.run_options import RunOptions, parted
from qtide.strategies.strategy import strategy_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qtide.interfaces.python.runnable import Runnable


OWN = ("name", "jobs", "warm_up")


class Comparison:
    """The cases of a comparison, one per strategy and number of jobs."""

    def __init__(self, folder: Path, cases: Sequence[Case]) -> None:
        self.folder = folder
        self._cases = list(cases)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per case: `strategy`, `jobs` and all figures, ready for pandas."""
        return [case.as_dict() for case in self._cases]

    @property
    def runs(self) -> list[Run[Any]]:
        """The runs of all cases."""
        return [Run(run) for case in self._cases for run in case.runs]

    @property
    def notes(self) -> list[str]:
        """Remarks on how to read the figures."""
        return notes(self._cases)

    def timelines(self) -> dict[int, Figure]:
        """Return a timeline for each number of jobs, as Matplotlib figures."""
        from qtide.interfaces.report.timeline import draw  # matplotlib is heavy

        numbers = dict.fromkeys(case.jobs for case in self._cases)
        panels = {n: [case.panel() for case in self._cases if case.jobs == n] for n in numbers}
        return {number: draw(each) for number, each in panels.items()}

    def report(self) -> Path:
        """Write the report of the comparison; return the path of its page."""
        return comparison_report(self.folder, self._cases).page

    def _repr_html_(self) -> str:
        return shown(self.folder.name, self._cases, self.notes)

    def _repr_png_(self) -> bytes:
        """Return the last timeline, for notebook viewers that show no HTML."""
        from qtide.interfaces.report.page import png  # imported late: matplotlib is slow

        return png([*self.timelines().values()][-1])

    def __str__(self) -> str:
        from rich.console import Console  # only printed comparisons need it

        from qtide.interfaces.report.table import TableRow, rich_table

        console = Console(width=100)
        rows = [TableRow(case.strategy, case.jobs, case.panel().metrics) for case in self._cases]
        with console.capture() as text:
            console.print(rich_table(rows, relative=len(rows) > 1))
        return text.get()

    def __repr__(self) -> str:
        return f"<qtide comparison {self.folder.name}: {len(self._cases)} cases>"


def compare(
    program: Runnable[..., Any],
    *args: Any,
    strategy: str | Sequence[str] | None = None,
    jobs: int | Sequence[int] | None = None,
    warm_up: bool | None = None,
    **given: Any,
) -> Comparison:
    """Run a program with these arguments under several strategies, as `qtide compare` does.

    `strategy` and `jobs` may each be a list; without a strategy, all are compared. Further
    keywords are arguments of the program or options of a run.
    """
    kwargs, more = parted(program, given, OWN)
    own = {"strategy": strategy, "jobs": jobs, "warm_up": warm_up}
    options = RunOptions("compare", more | own, OWN)
    spec = options.spec(reference(program), several=True)
    strategies = tuple(options.strategies() or strategy_names())
    found = options.find("jobs", 1)
    numbers = (found,) if isinstance(found, int) else tuple(found)
    call, warm = Call(program, args, kwargs), bool(options.find("warm_up", True))
    wanted = ComparisonPlan(spec, strategies, numbers, call, warm_up=warm)
    folder = wanted.folder(options.runs, str(options.find("name", "")))
    with progress(spec) as tell:
        return Comparison(folder, wanted.run(folder, tell))
