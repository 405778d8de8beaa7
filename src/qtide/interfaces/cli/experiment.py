"""qtide experiment: complete measurements, from the plan to the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qtide.core.errors import QtideError, UsageError
from qtide.experiments.sharing.sharing_plan import SharingPlan
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import (
    as_json,
    print_rows,
    say,
    show_table,
    status,
    terminal,
)
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.service import open_in_browser
from qtide.runs.folder import stamp

if TYPE_CHECKING:
    from qtide.experiments.sharing.experiment import Measuring
    from qtide.experiments.sharing.results import ResultRow
    from qtide.runs.comparison import Case

USUAL = SharingPlan()
COLUMNS = ("α", "N", "busy", "exp.", "total s", "±", "exp.", "gain", "queue s", "exp.", "QPU s")


class Interrupted(QtideError):  # noqa: N818 - the name says what happened
    """The user pressed Ctrl-C."""

    exit_code = 130


experiment = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Run whole experiments, from the plan to the page.",
)


@experiment.callback()
def _group() -> None:
    """Keep `sharing` a subcommand although it is the only one."""


@experiment.command("sharing", cls=PlainCommand)
def sharing(
    replicas: Annotated[
        str, typer.Option(help="Concurrent jobs: numbers, or ranges as in 1-16.")
    ] = "1-16",
    alphas: Annotated[
        str, typer.Option(help="Classical time, in multiples of the quantum time.")
    ] = "0,2,8",
    repetitions: Annotated[
        int, typer.Option(help="Repetitions of each point.")
    ] = USUAL.repetitions,
    sets: Annotated[
        str,
        typer.Option(help="Quantum step of the jobs; sharing-bursts needs no gate device."),
    ] = USUAL.sets,
    shots: Annotated[int, typer.Option(help="Shots of each circuit.")] = USUAL.shots,
    profile: Annotated[str, typer.Option(help="Timing profile of the QPU.")] = USUAL.profile,
    cluster: Annotated[
        str, typer.Option(help="local: threads; slurm: jobs on a box, each with a licence.")
    ] = USUAL.cluster,
    seed: Annotated[int, typer.Option(help="Seed of the graph and of the QPU.")] = USUAL.seed,
    name: Annotated[
        str, typer.Option(help="Name of its folder in the folder of runs.")
    ] = "sharing",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Measure what jobs gain by sharing one QPU. Repeat the command to continue.

    Example: qtide experiment sharing --replicas 1,2,4,8 --repetitions 3
    """
    plan = SharingPlan(
        replicas=tuple(_numbers(replicas)),
        alphas=tuple(_decimals(alphas)),
        repetitions=repetitions,
        sets=sets,
        shots=shots,
        device="burst" if sets == "sharing-bursts" else "star",
        profile=profile,
        cluster=cluster,
        seed=seed,
    )
    from qtide.experiments.sharing.experiment import write  # only to run it takes long to load

    folder = (runs / name).absolute()
    try:
        rows = _measured(plan, folder)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished points are kept; repeat the command to continue"
        ) from None
    found = write(plan, folder, rows)
    if json:
        as_json(found)
        return
    _show(rows)
    say(f"report: {found['page']}")


def _measured(plan: SharingPlan, folder: Path) -> list[ResultRow]:
    from qtide.experiments.sharing.experiment import measure

    with status("starting the service") as update:
        return measure(plan, folder, lambda each: update(_line(each)))


def _line(progress: Measuring) -> str:
    point = progress.point
    what = f"α = {point.alpha:g}, replicas {point.replicas}, repetition {point.repetition}"
    left = "" if progress.left is None else f"; about {_time(progress.left)} left"
    return f"{progress.number} of {progress.of}: {what}{left}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _show(rows: list[ResultRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    from qtide.experiments.sharing.figures import cells

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in COLUMNS:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*cells(row))
    Console(soft_wrap=True).print(table)


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            found += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise UsageError(
                f"--replicas cannot be {text!r}; give it as in 1-16 or 1,2,4"
            ) from None
    return found


def _decimals(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--alphas cannot be {text!r}; give numbers, as in 0,2,8") from None


def demo(
    runs: shared_options.Runs = shared_options.RUNS, json: shared_options.Json = False
) -> None:
    """Show in two minutes what qtide does: real clustering jobs, every strategy, a shared QPU.

    Example: qtide demo
    """
    from qtide.experiments.demo import play_story, require
    from qtide.interfaces.progress import TerminalProgress
    from qtide.interfaces.python.description import summary_line

    require()
    progress = TerminalProgress(terminal(), lines=False)

    def ended(case: Case) -> None:
        progress.note(f"  {summary_line(case)}")

    def serving(url: str) -> None:
        progress.note(f"  see it live, while it lasts: {url}")
        open_in_browser(url)

    folder = Path(runs) / f"demo-{stamp()}"
    with progress.shown():
        story = play_story(folder, progress.tell, ended, progress.note, serving)
    if json:
        as_json(story.as_dict())
        return
    show_table([*story.strategies, *story.sharing])
    for text in (*story.notes, "", *story.sentences):
        say(text)
    say(f"open: {story.page.absolute()}")


def reproduce(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="Tables and figures to make.  [default: all]",
            autocompletion=shared_options.published_items,
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full/--quick", help="All repetitions, at a slower clock: a night."),
    ] = False,
    name: Annotated[
        str, typer.Option(help="Name of its folder in the folder of runs.")
    ] = "reproduction",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Make published tables and figures again, beside the published numbers and the twin's.

    What is done is kept: repeat the command to continue.

    Example: qtide reproduce table-1 figure-9
    """
    from qtide.experiments.reproduction.reproduction import reproduce as made
    from qtide.experiments.reproduction.reproduction import write as write_results

    folder = (runs / name).absolute()
    try:
        with status("reproducing what was published") as update:
            found = made(folder, items or (), quick=not full, tell=update)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished items are kept; repeat the command to continue"
        ) from None
    data = write_results(folder, found, quick=not full)
    if json:
        as_json(data)
        return
    print_rows([{"item": e.name, "verdict": e.verdict, "what": e.title} for e in found])
    say(f"page: {folder / 'reproduction.html'}")
