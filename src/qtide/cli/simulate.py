"""qtide simulate: a site's whole workload in virtual time, under several strategies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.console import as_json, err, out
from qtide.cli.table import print_rows
from qtide.errors import UsageError
from qtide.models.site import SiteModel, read_site
from qtide.strategies.strategy import STRATEGIES, strategy_names

if TYPE_CHECKING:
    from qtide.twin.play import Policy
    from qtide.twin.simulate import Case

Site = Annotated[
    Path, typer.Argument(metavar="SITE", help="A site file: see docs/twin.md.", dir_okay=False)
]
Cores = Annotated[int, typer.Option(min=0, help="Cores to use; 0 for all.")]


def simulate(
    site: Site,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A strategy; may be repeated.  [default: all]",
            autocompletion=completion.strategies,
        ),
    ] = None,
    vqpus: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Virtual QPUs per QPU; may be repeated.  [default: 4]"),
    ] = None,
    replications: Annotated[int, typer.Option(min=1, help="Of each case.")] = 3,
    cores: Cores = 0,
    page: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("simulation.html"),
    json: options.Json = False,
) -> None:
    """Simulate a site's whole workload, others' jobs included.

    Example: qtide simulate site.toml --strategy static --strategy elastic
    """
    from qtide.twin.page import write_page
    from qtide.twin.play import Policy

    model = read_site(site)
    names = strategy or strategy_names()
    for name in names:
        STRATEGIES.load(name)  # refuses unknown ones before anything is computed
    policies = [Policy(name, number) for name in names for number in vqpus or [4]]
    cases = _simulated(model, policies, replications, cores)
    write_page(page, f"{site.name}: {', '.join(dict.fromkeys(names))}", cases)
    if json:
        as_json({"page": str(page), "cases": [described(case) for case in cases]})
        return
    print_rows([row(case) for case in cases])
    out.print(f"report: {page}", markup=False, highlight=False)


def described(case: Case) -> dict[str, object]:
    """A case for JSON."""
    estimates = {
        name: {"mean": each.mean, "half": each.half} for name, each in case.estimates().items()
    }
    return {"strategy": case.policy.strategy, "vqpus": case.policy.vqpus} | estimates


def row(case: Case) -> dict[str, object]:
    """A case as a row of the table."""
    found = case.estimates()

    def shown(name: str) -> str:
        return f"{found[name].mean:,.0f} ± {found[name].half:,.0f}"

    return {
        "strategy": case.policy.strategy,
        "vQPUs": case.policy.vqpus,
        "turnaround s": shown("turnaround"),
        "node-s": shown("node_seconds"),
        "slowdown": f"{found['slowdown'].mean:.2f}",
        "QPU busy": f"{found['qpu_occupancy'].mean:.1%}",
        "nodes busy": f"{found['utilisation'].mean:.1%}",
        "others wait s": shown("others_wait"),
        "kWh": f"{found['energy_kwh'].mean:.3g}",
    }


def _simulated(
    model: SiteModel, policies: list[Policy], replications: int, cores: int
) -> list[Case]:
    from qtide.twin.simulate import simulate as run

    if model.hybrid.jobs == 0 and not model.hybrid.share:
        raise UsageError("the site has no hybrid jobs; set jobs or share in its [hybrid]")
    with err.status("simulating") as status:
        return run(
            model,
            policies,
            replications,
            cores or len(os.sched_getaffinity(0)),
            lambda done, of: status.update(f"{done} of {of} replications"),
        )
