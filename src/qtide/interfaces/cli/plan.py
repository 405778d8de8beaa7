"""qtide plan: which strategy, how many virtual QPUs, and when to buy another QPU."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isfinite, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.models.site_model import Billing, SiteModel, read_site, unmet
from qtide.core.errors import UsageError
from qtide.core.resources import WHOLE, Needs
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, print_rows, say, status, warn
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.twin import check_hybrids, site_warnings
from qtide.strategies.strategy import STRATEGIES

if TYPE_CHECKING:
    from qtide.twin.advice import Advice, MapCell, Range
    from qtide.twin.capacity import SharingEstimate, SiteEstimate


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
Tasks = Annotated[str, typer.Option(help="Seconds of each concurrent task.")]
Alone = Annotated[float, typer.Option(min=0, help="Seconds of one task after that.")]
TaskNeeds = Annotated[
    str | None,
    typer.Option(
        metavar="cores=4,gpus=1",
        help="What each concurrent task needs of a node.  [default: a whole node]",
    ),
]
AloneNeeds = Annotated[
    str | None,
    typer.Option(metavar="cores=4,kind=gpu", help="What the single task needs of a node."),
]
Rounds = Annotated[int, typer.Option(min=1, help="How often all of that comes.")]
Nodes = Annotated[int, typer.Option(min=1, help="The most nodes of the job.")]
Wait = Annotated[
    str,
    typer.Option(
        metavar="SECONDS",
        help="Seconds that a request waits in the queue; several, as in 0,30,400, are for one "
        "node held, for two and for three.",
    ),
]
PresentQueue = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Take the waits from this cluster's queue as it is now, as in slurm.",
        autocompletion=shared_options.clusters,
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Jobs like this one that come at once.")]
Shared = Annotated[int, typer.Option(min=1, help="Virtual QPUs that they share.")]
Site = Annotated[Path | None, typer.Option(metavar="FILE", help="Site file.  [default: no delays]")]
NodePrice = Annotated[
    float, typer.Option(min=0, help="Seconds of waiting that a node-second is worth.")
]
QpuPrice = Annotated[
    float, typer.Option(min=0, help="Seconds of waiting that a second of the QPU is worth.")
]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Strategy to consider; may be repeated.  [default: all]",
        autocompletion=shared_options.strategies,
    ),
]
Picture = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw a finer map to this PNG file.")
]


@plan.command("strategy", cls=PlainCommand)
def which_strategy(
    tasks: Tasks = "77.3,3.5,0.2",
    quantum: Quantum = 120.0,
    alone: Alone = 52.0,
    needs: TaskNeeds = None,
    alone_needs: AloneNeeds = None,
    rounds: Rounds = 4,
    nodes: Nodes = 3,
    wait: Wait = "0",
    cluster: PresentQueue = None,
    jobs: Jobs = 1,
    vqpus: Shared = 1,
    site: Site = None,
    node_price: NodePrice = 1.0,
    qpu_price: QpuPrice = 10.0,
    strategy: Strategies = None,
    picture: Picture = None,
    json: shared_options.Json = False,
) -> None:
    """Advise which strategy suits a job.

    Example: qtide plan strategy --quantum 5 --wait 60
    """
    from qtide.twin.advice import Arrival, Prices, advise, strategy_map
    from qtide.twin.simulation import HybridJob, HybridStep
    from qtide.twin.simulation_page import draw_map

    _check_finite(quantum=quantum, alone=alone)
    _check_finite(node_price=node_price, qpu_price=qpu_price)
    model = _site(site) if site else SiteModel(nodes=nodes)
    parallel = HybridStep(_numbers("tasks", tasks), needs=_needs("needs", needs, model))
    single = HybridStep((alone,), needs=_needs("alone-needs", alone_needs, model))
    steps = (parallel, HybridStep(quantum=quantum), *([single] if alone else []))
    job = HybridJob(steps * rounds, nodes=nodes)
    prices = Prices(node=node_price, qpu=qpu_price)
    for name in strategy or ():
        STRATEGIES.load(name)  # rejects unknown names
    waits = _present(cluster, nodes) if cluster else dict(enumerate(_numbers("wait", wait), 1))
    if any(waits.values()) and model.part("").is_batch:
        raise UsageError("--wait does not go with a site that has a queue of its own; leave it out")
    arrival = Arrival(jobs, vqpus)
    advice = advise(job, model, waits, prices, strategy or (), arrival=arrival)
    chart = strategy_map(job, model, RATIOS, WAITS, prices, strategy or ())
    if picture is not None:
        here = job.quantum / max(1e-9, job.shortest - job.quantum), waits[max(waits)]
        fine = strategy_map(job, model, FINE_RATIOS, FINE_WAITS, prices, strategy or ())
        draw_map(picture, FINE_RATIOS, FINE_WAITS, fine, here)
    if json:
        names = [[cell.strategy for cell in row] for row in chart]
        margins = [[cell.margin for cell in row] for row in chart]
        axes = {"ratios": RATIOS, "waits": WAITS}
        as_json(asdict(advice) | axes | {"flips": names, "margins": margins})
        return
    _show(advice, chart, "node-s" if model.billing == Billing() else "charged node-s")


Longest = Annotated[float, typer.Option(min=0, help="Longest mean wait of payloads, in seconds.")]
WaitP95 = Annotated[
    float | None,
    typer.Option(min=0, help="Instead: seconds that 95 % of the payloads may wait at most."),
]
Between = Annotated[
    float, typer.Option(min=0, help="Seconds of classical work between two quantum phases.")
]
Policy = Annotated[str, typer.Option(metavar="NAME", help="Policy of the vQPU service.")]
Fixed = Annotated[bool, typer.Option("--fixed", help="Use constant times instead of random ones.")]
SiteOfJobs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Take jobs, QPU and service from this site file."),
]
StrategyOfSite = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="With --site: the strategy of its jobs.",
        autocompletion=shared_options.strategies,
    ),
]


@plan.command("vqpus", cls=PlainCommand)
def vqpus(
    longest: Longest = 60.0,
    wait_p95: WaitP95 = None,
    quantum: Quantum = 10.0,
    classical: Between = 90.0,
    policy: Policy = "fair",
    fixed: Fixed = False,
    site: SiteOfJobs = None,
    strategy: StrategyOfSite = "elastic",
    json: shared_options.Json = False,
) -> None:
    """Advise how many virtual QPUs to offer.

    Example: qtide plan vqpus --quantum 10 --classical 90 --longest 30
    """
    from qtide.twin.capacity import Loop, best_offer

    _check_finite(longest=longest, quantum=quantum, classical=classical, wait_p95=wait_p95 or 0.0)
    p95 = wait_p95 is not None
    limit = longest if wait_p95 is None else wait_p95
    if site is not None:
        model = _site(site)
        model = replace(model, service=model.service or ServiceModel(policy))
        _offer_at_site(model, strategy, limit, p95=p95, json=json)
        return
    model = SiteModel(
        qpu=QpuModel(spread="fixed" if fixed else "exponential"), service=ServiceModel(policy)
    )
    if not quantum:
        raise UsageError("a payload takes time; give --quantum a number above 0")
    with status("simulating jobs", pace=10.0) as update:
        best, rows = best_offer(
            Loop(quantum, classical),
            model,
            limit,
            lambda n: update(f"simulating {n} jobs"),
            p95=p95,
        )
    if json:
        as_json({"offer": best, "sharing": [asdict(row) for row in rows]})
        return
    _show_sharing(best, rows, limit, p95=p95)


def _offer_at_site(model: SiteModel, strategy: str, limit: float, *, p95: bool, json: bool) -> None:
    """Advise how many virtual QPUs to offer to a site's own jobs."""
    from qtide.twin.capacity import best_offer_for_site

    STRATEGIES.load(strategy)  # rejects unknown names
    check_hybrids(model)
    with status("simulating the site") as update:
        best, found = best_offer_for_site(
            model, strategy, limit, lambda n: update(f"simulating {n} virtual QPUs"), p95=p95
        )
    if json:
        as_json({"offer": best, "sharing": [asdict(row) for row in found]})
        return
    _show_site(best, found, limit, p95=p95)


@plan.command("growth", cls=PlainCommand)
def growth(
    payloads: Annotated[float, typer.Option(min=0, help="Payloads per day now.")] = 1000.0,
    quantum: Quantum = 30.0,
    yearly: Annotated[
        float, typer.Option(help="Growth per year, as a share; -0.1 is 10 % less.")
    ] = 0.5,
    spread: Annotated[
        float,
        typer.Option(min=0, help="Standard deviation of a year's growth; 0 if it is certain."),
    ] = 0.2,
    wait_p95: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="The QPUs are full when 5 % of the payloads wait longer, in seconds.  "
            "[default: when they are 85 % busy]",
        ),
    ] = None,
    qpus: Annotated[int, typer.Option(min=1, help="QPUs, now.")] = 1,
    json: shared_options.Json = False,
) -> None:
    """Tell when the QPU will be full, and what another one brings.

    Example: qtide plan growth --payloads 1500 --quantum 30 --yearly 0.6
    """
    from qtide.twin.capacity import GrowthTarget, growth_advice
    from qtide.twin.capacity import growth as grown

    _check_finite(payloads=payloads, quantum=quantum, yearly=yearly, spread=spread)
    _check_finite(wait_p95=wait_p95 or 0.0)
    if yearly <= -1:
        raise UsageError(f"--yearly cannot be {yearly:g}: a demand cannot shrink by 100 % or more")
    target = GrowthTarget(yearly, spread, wait_p95)
    found = [grown(payloads, quantum, target, number) for number in (qpus, qpus + 1)]
    if json:
        rows = [{name: _finite(x) for name, x in asdict(row).items()} for row in found]
        as_json([rows[0] | {"advice": growth_advice(found, target)}, rows[1]])
        return
    print_rows(
        [
            {
                "QPUs": row.qpus,
                "QPU busy": f"{row.occupancy:.1%}",
                "wait s": _endless(row.wait),
                "95 % wait s": _endless(row.usual),
                "full at": f"{row.full_at:.0%}",
                "full in years": _years(row.full_in),
                "90 %": f"{_years(row.soonest)} to {_years(row.latest)}",
            }
            for row in found
        ]
    )
    say(f"\n{growth_advice(found, target)}")


def _endless(seconds: float) -> str:
    return "without end" if isinf(seconds) else f"{seconds:,.1f}"


def _years(years: float) -> str:
    return "never" if isinf(years) else f"{years:.1f}"


def _show(advice: Advice, chart: list[list[MapCell]], charged: str) -> None:
    """Print the strategies, with what the site charges, and where the advice flips."""
    print_rows(
        [
            {
                "strategy": each.strategy,
                "wall s": _range(each.wall),
                charged: _range(each.node_seconds),
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
    """Format the advised strategy and its margin over the runner-up."""
    return f"{cell.strategy} {cell.margin:.0%}" if cell.margin >= 0.005 else f"{cell.strategy} ="


def _show_sharing(best: int, rows: list[SharingEstimate], limit: float, *, p95: bool) -> None:
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
    late = "" if (found.usual if p95 else found.wait).high <= limit else _too_long(limit)
    say(
        f"offer {best}: {_waits(found, p95=p95)}{late}, and the QPU is busy for "
        f"{found.occupancy.mean:.0%} of the time"
    )


def _waits(found: SharingEstimate | SiteEstimate, *, p95: bool) -> str:
    if p95:
        return f"95 % of the payloads then wait for at most {found.usual.mean:.1f} s"
    return f"payloads then wait for {found.wait.mean:.1f} s on average"


def _too_long(limit: float) -> str:
    return f", longer than {limit:g} s with any number"


def _show_site(best: int, rows: list[SiteEstimate], limit: float, *, p95: bool) -> None:
    print_rows(
        [
            {
                "vQPUs": row.vqpus,
                "wait s": f"{row.wait.mean:.1f} ± {row.wait.half:.1f}",
                "95 % wait s": f"{row.usual.mean:.1f} ± {row.usual.half:.1f}",
                "turnaround s": f"{row.turnaround.mean:,.0f} ± {row.turnaround.half:,.0f}",
                "QPU busy": f"{row.occupancy.mean:.1%} ± {row.occupancy.half:.1%}",
            }
            for row in rows
        ]
    )
    found = next(row for row in rows if row.vqpus == best)
    late = "" if (found.usual if p95 else found.wait).mean <= limit else _too_long(limit)
    say(
        f"offer {best}: {_waits(found, p95=p95)}{late}, and the QPU is busy for "
        f"{found.occupancy.mean:.1%} of the time; more would not shorten the jobs"
    )


def _present(cluster: str, nodes: int) -> dict[int, float]:
    """Ask a cluster how long requests would wait now, by their number of nodes."""
    from qtide.backends.clusters.kind import Setting, cluster_kind

    kind, argument = cluster_kind(cluster)
    found = {n: kind.queue(Setting(argument, nodes, {}), n) for n in range(1, nodes + 1)}
    known = {n: queue.wait for n, queue in found.items() if queue is not None}
    if not known:
        raise UsageError(f"{cluster} does not say how long requests wait; give --wait")
    widest = found[max(known)]
    warn(f"now: {widest.words}" if widest else "")
    return known


def _site(file: Path) -> SiteModel:
    """Read a site file; print warnings about what does not fit."""
    model = read_site(file)
    for warning in site_warnings(model):
        warn(f"warning: {warning}")
    return model


def _needs(option: str, words: str | None, model: SiteModel) -> Needs:
    """Read what tasks need; refuse what no node of the site has."""
    found = Needs.parse(words) if words else WHOLE
    why = unmet(model, found)
    if why:
        raise UsageError(f"--{option}: {why}")
    return found


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not isfinite(value):
            option = name.replace("_", "-")
            raise UsageError(f"--{option} cannot be {value}; give a finite number")


def _range(found: Range) -> str:
    if found.low == found.high:
        return f"{found.expected:,.0f}"
    return f"{found.expected:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def _finite(value: float) -> float | None:
    return None if isinf(value) else value


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(isfinite(each) and each >= 0 for each in numbers):
        raise UsageError(f"--{option} cannot be {text!r}; give seconds from 0 on, as in 60,60,5")
    return numbers
