"""qtide plan: which strategy, how many virtual QPUs, and what growth takes."""

from __future__ import annotations

from dataclasses import asdict
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.cli.help import PlainCommand, PlainGroup
from qtide.cli.table import print_rows
from qtide.errors import UsageError
from qtide.models.site import SiteModel, read_site

if TYPE_CHECKING:
    from qtide.twin.advice import Advice, Range

RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
WAITS = (0.0, 10.0, 60.0, 600.0)

plan = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Advise on strategies, virtual QPUs and growth, by the twin of a site.",
)

Quantum = Annotated[float, typer.Option(min=0, help="Seconds of a quantum phase.")]


@plan.command("strategy", cls=PlainCommand)
def strategy(
    tasks: Annotated[
        str, typer.Option(help="Seconds of the tasks that run side by side.")
    ] = "77.3,3.5,0.2",
    quantum: Quantum = 120.0,
    alone: Annotated[float, typer.Option(min=0, help="Seconds of one task after that.")] = 52.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often all of that comes.")] = 4,
    nodes: Annotated[int, typer.Option(min=1, help="The most nodes of the job.")] = 3,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that a request waits.")] = 0.0,
    site: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A site file.  [default: no delays]")
    ] = None,
    node_price: Annotated[
        float, typer.Option(min=0, help="Seconds of waiting that a node-second is worth.")
    ] = 1.0,
    qpu_price: Annotated[
        float, typer.Option(min=0, help="The same for a second of the QPU.")
    ] = 10.0,
    json: options.Json = False,
) -> None:
    """Which strategy for my job?

    Example: qtide plan strategy --quantum 5 --wait 60
    """
    from qtide.twin.advice import Prices, advise, flips
    from qtide.twin.hybrid import HybridJob, Step

    steps = (Step(_numbers(tasks)), Step(quantum=quantum), Step((alone,)))
    job = HybridJob(steps * rounds, nodes=nodes)
    model = read_site(site) if site else SiteModel(nodes=nodes)
    prices = Prices(node=node_price, qpu=qpu_price)
    advice = advise(job, model, wait, prices)
    chart = flips(job, model, RATIOS, WAITS, prices)
    if json:
        as_json(asdict(advice) | {"ratios": RATIOS, "waits": WAITS, "flips": chart})
        return
    _show(advice, chart)


@plan.command("vqpus", cls=PlainCommand)
def vqpus(
    longest: Annotated[float, typer.Option(min=0, help="Seconds that a payload may wait.")] = 60.0,
    quantum: Quantum = 10.0,
    classical: Annotated[
        float, typer.Option(min=0, help="Seconds of work between two of them.")
    ] = 90.0,
    json: options.Json = False,
) -> None:
    """How many virtual QPUs should we offer?

    Example: qtide plan vqpus --quantum 10 --classical 90 --longest 30
    """
    from qtide.twin.capacity import offer, sharing

    if not quantum:
        raise UsageError("a payload takes time; give --quantum a number above 0")
    best = offer(quantum, classical, longest)
    rows = sharing(quantum, classical, best.jobs + 2)
    if json:
        as_json({"offer": asdict(best), "sharing": [asdict(row) for row in rows]})
        return
    print_rows(
        [
            {"vQPUs": row.jobs, "wait s": f"{row.wait:.1f}", "QPU busy": f"{row.occupancy:.1%}"}
            for row in rows[max(0, best.jobs - 6) :]
        ]
    )
    out.print(
        f"offer {best.jobs}: payloads then wait for {best.wait:.1f} s on average, and the QPU is "
        f"busy for {best.occupancy:.0%} of the time",
        highlight=False,
    )


@plan.command("growth", cls=PlainCommand)
def growth(
    payloads: Annotated[float, typer.Option(min=0, help="Payloads per day, now.")] = 1000.0,
    quantum: Quantum = 30.0,
    yearly: Annotated[float, typer.Option(help="Growth per year, as a share.")] = 0.5,
    qpus: Annotated[int, typer.Option(min=1, help="QPUs, now.")] = 1,
    json: options.Json = False,
) -> None:
    """What would it take: when is the QPU full, and what does another one bring?

    Example: qtide plan growth --payloads 1500 --quantum 30 --yearly 0.6
    """
    from qtide.twin.capacity import growth as grown

    found = [grown(payloads, quantum, yearly, number) for number in (qpus, qpus + 1)]
    if json:
        as_json([{name: _finite(each) for name, each in asdict(row).items()} for row in found])
        return
    print_rows(
        [
            {
                "QPUs": row.qpus,
                "QPU busy": f"{row.occupancy:.1%}",
                "wait s": "without end" if isinf(row.wait) else f"{row.wait:,.1f}",
                "full in years": "never" if isinf(row.full_in) else f"{row.full_in:.1f}",
            }
            for row in found
        ]
    )


def _show(advice: Advice, chart: list[list[str]]) -> None:
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
    out.print(f"\nadvice: {advice.strategy}; {advice.why}\n", highlight=False)
    rows: list[dict[str, Any]] = [
        {"wait s": f"{wait:g}"}
        | {f"q/c {ratio:g}": name for ratio, name in zip(RATIOS, row, strict=True)}
        for wait, row in zip(WAITS, chart, strict=True)
    ]
    print_rows(rows)


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
