"""qtide plan: which strategy, how many virtual QPUs, and what growth takes."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.backends.models.site_model import QpuModel, ServiceModel, SiteModel, read_site
from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, print_rows, say, status
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.strategies.strategy import STRATEGIES

if TYPE_CHECKING:
    from qtide.twin.advice import Advice, MapCell, Range
    from qtide.twin.vqpus import GrowthPlan, Loop, Shared


RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
WAITS = (0.0, 10.0, 60.0, 600.0)
FINE_RATIOS = (0.03, 0.06, 0.1, 0.2, 0.3, 0.6, 1.0, 2.0, 3.0, 6.0, 10.0)
FINE_WAITS = (0.0, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0)

plan = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Get advice from the twin of a site on strategies, virtual QPUs and growth.",
)

Quantum = Annotated[float, typer.Option(min=0, help="Seconds of a quantum phase.")]


@plan.command("strategy", cls=PlainCommand)
def which_strategy(
    tasks: Annotated[str, typer.Option(help="Seconds of each concurrent task.")] = "77.3,3.5,0.2",
    quantum: Quantum = 120.0,
    alone: Annotated[
        float, typer.Option(min=0, help="Seconds of the single task after the quantum phase.")
    ] = 52.0,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 4,
    nodes: Annotated[int, typer.Option(min=1, help="Most nodes of the job.")] = 3,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds that a request for nodes waits.")
    ] = 0.0,
    site: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Site file.  [default: no delays]")
    ] = None,
    node_price: Annotated[
        float, typer.Option(min=0, help="Seconds of waiting that a node-second is worth.")
    ] = 1.0,
    qpu_price: Annotated[
        float, typer.Option(min=0, help="Seconds of waiting that a second of the QPU is worth.")
    ] = 10.0,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Strategy to consider; may be repeated.  [default: all]",
            autocompletion=shared_options.strategies,
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a finer map to this PNG file.")
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Advise which strategy suits a job.

    Example: qtide plan strategy --quantum 5 --wait 60
    """
    from qtide.twin.advice import Prices, advise, strategy_map
    from qtide.twin.play import HybridJob, HybridStep
    from qtide.twin.simulation_page import draw_map

    steps = (HybridStep(_numbers(tasks)), HybridStep(quantum=quantum), HybridStep((alone,)))
    job = HybridJob(steps * rounds, nodes=nodes)
    model = read_site(site) if site else SiteModel(nodes=nodes)
    prices = Prices(node=node_price, qpu=qpu_price)
    for name in strategy or ():
        STRATEGIES.load(name)  # refuses unknown ones
    advice = advise(job, model, wait, prices, strategy or ())
    chart = strategy_map(job, model, RATIOS, WAITS, prices, strategy or ())
    if picture is not None:
        here = job.quantum / max(1e-9, job.shortest - job.quantum), wait
        fine = strategy_map(job, model, FINE_RATIOS, FINE_WAITS, prices, strategy or ())
        draw_map(picture, FINE_RATIOS, FINE_WAITS, fine, here)
    if json:
        names = [[cell.strategy for cell in row] for row in chart]
        margins = [[cell.margin for cell in row] for row in chart]
        axes = {"ratios": RATIOS, "waits": WAITS}
        as_json(asdict(advice) | axes | {"flips": names, "margins": margins})
        return
    _show(advice, chart)


@plan.command("vqpus", cls=PlainCommand)
def vqpus(
    longest: Annotated[
        float, typer.Option(min=0, help="Longest mean wait of payloads, in seconds.")
    ] = 60.0,
    quantum: Quantum = 10.0,
    classical: Annotated[
        float, typer.Option(min=0, help="Seconds of classical work between two quantum phases.")
    ] = 90.0,
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="Policy of the vQPU service.")
    ] = "fair",
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Use constant times instead of random ones.")
    ] = False,
    site: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take jobs, QPU and service from this site file."),
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Advise how many virtual QPUs to offer.

    Example: qtide plan vqpus --quantum 10 --classical 90 --longest 30
    """
    from qtide.twin.vqpus import Loop, offered

    model = SiteModel(
        qpu=QpuModel(spread="fixed" if fixed else "exponential"), service=ServiceModel(policy)
    )
    loop = Loop(quantum, classical)
    if site is not None:
        model = read_site(site)
        model = replace(model, service=model.service or ServiceModel(policy))
        loop = _loop_of(model)
    if not loop.quantum:
        raise UsageError("a payload takes time; give --quantum a number above 0")
    with status("playing jobs", pace=10.0) as update:
        best, rows = offered(loop, model, longest, lambda n: update(f"playing {n} jobs"))
    if json:
        as_json({"offer": best, "sharing": [asdict(row) for row in rows]})
        return
    _show_sharing(best, rows)


@plan.command("growth", cls=PlainCommand)
def growth(
    payloads: Annotated[float, typer.Option(min=0, help="Payloads per day now.")] = 1000.0,
    quantum: Quantum = 30.0,
    yearly: Annotated[float, typer.Option(help="Growth per year, as a fraction.")] = 0.5,
    qpus: Annotated[int, typer.Option(min=1, help="QPUs now.")] = 1,
    json: shared_options.Json = False,
) -> None:
    """Tell when the QPU will be full, and what another one brings.

    Example: qtide plan growth --payloads 1500 --quantum 30 --yearly 0.6
    """
    from qtide.twin.vqpus import growth as grown

    now, then = (grown(payloads, quantum, yearly, number) for number in (qpus, qpus + 1))
    advice = verdict(now, quantum)
    if json:
        rows = [{name: _finite(x) for name, x in asdict(row).items()} for row in (now, then)]
        as_json([rows[0] | {"verdict": advice}, rows[1]])
        return
    print_rows(
        [
            {
                "QPUs": row.qpus,
                "QPU busy": f"{row.occupancy:.1%}",
                "wait s": "without end" if isinf(row.wait) else f"{row.wait:,.1f}",
                "full in years": "never" if isinf(row.full_in) else f"{row.full_in:.1f}",
            }
            for row in (now, then)
        ]
    )
    say(advice)


SOON = 1.0
"""Years: a QPU that is full before is due now, as buying one takes about as long."""


def verdict(now: GrowthPlan, quantum: float) -> str:
    """Whether to buy another QPU, and when."""
    more = "another QPU"
    if now.full_in == 0:
        wait = "a queue without end" if isinf(now.wait) else f"waits of {now.wait:,.0f} s"
        return f"Buy {more} now: {_qpus(now.qpus)} cannot take this demand ({wait})."
    if isinf(now.full_in):
        return f"Do not buy {more}: the demand does not grow, and {_qpus(now.qpus)} can take it."
    if now.full_in < SOON:
        months = max(1, round(12 * now.full_in))
        return f"Buy {more} now: {_qpus(now.qpus)} will be full in {months} months."
    waits = f"a payload of {quantum:g} s now waits {now.wait:,.1f} s on average"
    return (
        f"Do not buy {more} yet: {_qpus(now.qpus)} will be full in {now.full_in:.1f} years; plan "
        f"the purchase for {now.full_in - SOON:.1f} years from now ({waits})."
    )


def _qpus(number: int) -> str:
    return "1 QPU" if number == 1 else f"{number} QPUs"


def _show(advice: Advice, chart: list[list[MapCell]]) -> None:
    print_rows(
        [
            {
                "strategy": each.strategy,
                "wall s": _range(each.wall),
                "node-s": _range(each.node_seconds),
                "QPU held s": _range(each.qpu_hold),
            }
            for each in advice.expected
        ]
    )
    say(f"\nadvice: {advice.strategy}; {advice.why}\n")
    rows: list[dict[str, Any]] = [
        {"wait s": f"{wait:g}"}
        | {f"q/c {ratio:g}": _cell(cell) for ratio, cell in zip(RATIOS, row, strict=True)}
        for wait, row in zip(WAITS, chart, strict=True)
    ]
    print_rows(rows)
    say(
        "q/c: quantum time per classical time; per cent: how much more the runner-up costs; "
        "=: the runner-up costs the same"
    )


def _cell(cell: MapCell) -> str:
    """The advised strategy, and its margin over the runner-up."""
    return f"{cell.strategy} {cell.margin:.0%}" if cell.margin >= 0.005 else f"{cell.strategy} ="


def _show_sharing(best: int, rows: list[Shared]) -> None:
    print_rows(
        [
            {
                "vQPUs": row.jobs,
                "wait s": f"{row.wait.mean:.1f} ± {row.wait.half:.1f}",
                "95 % wait s": f"{row.usual.mean:.1f} ± {row.usual.half:.1f}",
                "QPU busy": f"{row.occupancy.mean:.1%} ± {row.occupancy.half:.1%}",
            }
            for row in rows
        ]
    )
    found = next(row for row in rows if row.jobs == best)
    say(
        f"offer {best}: payloads then wait for {found.wait.mean:.1f} s on average, and the QPU is "
        f"busy for {found.occupancy.mean:.0%} of the time"
    )


def _loop_of(model: SiteModel) -> Loop:
    """What a site's hybrid jobs do between two payloads."""
    from qtide.twin.simulate import HybridWorkload
    from qtide.twin.vqpus import Loop

    job = next(HybridWorkload.of(replace(model, hybrid=replace(model.hybrid, jobs=1)), 0).hybrids())
    return Loop(model.hybrid.quantum, (job.shortest - job.quantum) / model.hybrid.rounds)


def _range(found: Range) -> str:
    if found.low == found.high:
        return f"{found.expected:,.0f}"
    return f"{found.expected:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def _finite(value: float) -> float | None:
    return None if isinf(value) else value


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--tasks cannot be {text!r}; give seconds, as in 60,60,5") from None
