"""qtide twin, predict and simulate: calibrate a site's model, predict jobs and simulate it."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qtide.backends.models.qpu_model import ServiceModel
from qtide.backends.models.site_model import Billing, SiteModel, read_site
from qtide.core.errors import UsageError
from qtide.core.ledger import Interval
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, print_rows, say, status, warn
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual
from qtide.strategies.strategy import STRATEGIES, strategy_names

if TYPE_CHECKING:
    from qtide.twin.advice import Range
    from qtide.twin.prediction import Prediction
    from qtide.twin.replications import Scenario
    from qtide.twin.simulation import StrategySetup


twin = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Fit the twin of a site to real runs.",
)


@twin.command("calibrate", cls=PlainCommand)
def calibrate(
    names: Annotated[
        str,
        typer.Argument(
            metavar="RUNS",
            help="Runs of single jobs, separated by commas.",
            autocompletion=shared_options.runs,
        ),
    ],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the site.")] = 3,
    site: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the site to this file.")
    ] = None,
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Fit the parameters of a site to the ledgers of real runs.

    Example: qtide twin calibrate last --site site.toml
    """
    from qtide.twin.calibration import calibrate as fit
    from qtide.twin.calibration import kept_agents

    folders = [RunFolder.find(runs, name) for name in names.split(",")]
    found = fit(map(_ended, folders), keeps_agents=kept_agents(folders[-1].spec))
    if site is not None:
        site.write_text(found.toml(nodes))
    if json:
        as_json(asdict(found) | {"doubts": found.doubts(), "advice": found.advice()})
        return
    fitted = found.parameters | {f"task {name}": each for name, each in found.tasks.items()}
    print_rows(
        [
            {
                "what": name,
                "seconds": f"{each.value:.4g}",
                "±": f"{each.half:.2g}",
                "from": each.samples,
            }
            for name, each in fitted.items()
        ]
    )
    for doubt in found.doubts():
        say(f"doubtful: {doubt}")
    if found.advice():
        say(found.advice())
    if site is not None:
        say(f"site: {site}")


SacctFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Parsable output of sacct, with its header.")
]
TraceFile = Annotated[
    Path, typer.Option("--to", metavar="FILE", help="Write the trace there (SWF).")
]
HybridPattern = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Marks hybrid jobs, by name, partition, TRES or licences.  [default: those with a "
        "licence qpu, and those of qtide]",
    ),
]
NodesOfSite = Annotated[
    int | None, typer.Option(min=1, help="Nodes of the site.  [default: the most in use]")
]


@twin.command("import", cls=PlainCommand)
def import_sacct(
    file: SacctFile,
    to: TraceFile = Path("workload.swf"),
    hybrid: HybridPattern = None,
    nodes: NodesOfSite = None,
    json: shared_options.Json = False,
) -> None:
    """Turn Slurm's accounting into a workload for a site file.

    Write FILE by: sacct -aXP -S 2026-01-01
    -o JobID,User,Partition,Submit,Start,End,NNodes,Timelimit,ReqTRES,JobName

    Example: qtide twin import jobs.txt --to workload.swf
    """
    from qtide.backends.models.trace import write_swf
    from qtide.twin.sacct import HYBRID, described, read_sacct
    from qtide.twin.workload import most_in_use

    found = read_sacct(file, HYBRID if hybrid is None else hybrid)
    trace = found.trace
    widest, used = int(trace.nodes.max()), most_in_use(trace)
    size = nodes or used
    write_swf(to, trace, size)
    days = float(trace.submit[-1]) / 86_400
    site = f'nodes = {size}\nscheduler = "easy"\n[background]\ntrace = "{to.name}"\n'
    site += "[hybrid]\nmarked = true\n"
    if json:
        as_json(
            {
                "trace": str(to),
                "jobs": len(trace),
                "hybrids": found.hybrids,
                "days": days,
                "widest": widest,
                "nodes": size,
                "left_out": dict(found.left_out),
                "site": site,
            }
        )
        return
    lines = [
        f"{len(trace):,} jobs in {days:.1f} days, {found.hybrids:,} of them hybrid; the widest "
        f"took {widest:,} nodes, and at most {used:,} were in use at once",
        *([f"left out: {', '.join(described(found.left_out))}"] if found.left_out else []),
        *([NO_HYBRIDS] if not found.hybrids else []),
        *(
            [f"warning: {size:,} nodes are fewer than the {used:,} that were in use at once"]
            if size < used
            else []
        ),
        f"trace: {to}; a site file for it, to be completed (see docs/twin.md):",
        "",
        site,
    ]
    say("\n".join(lines))


NO_HYBRIDS = (
    "no job is marked as hybrid: give --hybrid a pattern, or set hybrid.share in the site file"
)


ProgramOrRuns = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM|RUNS",
        help="A program that ran before, or names of its runs with commas between.",
        autocompletion=shared_options.runs,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS",
        help="Its arguments, after -- if they begin with -.  [default: the newest run's]",
    ),
]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A strategy; may be repeated.  [default: all]",
        autocompletion=shared_options.strategies,
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Jobs of the program at once.")]
NodesOfJob = Annotated[int, typer.Option(min=1, help="The most nodes of a job.")]
ClusterNodes = Annotated[
    int | None, typer.Option(min=1, help="Nodes of the cluster.  [default: --nodes]")
]
VirtualQpus = Annotated[
    int | None, typer.Option(min=1, help="Virtual QPUs.  [default: one per job]")
]
QuantumSeconds = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds of each quantum phase.  [default: as in the runs]"),
]
LearnFrom = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Learn from runs on this kind of cluster.  [default: the newest run's]",
        autocompletion=shared_options.clusters,
    ),
]


def predict(
    names: ProgramOrRuns = "last",
    words: Words = None,
    strategy: Strategies = None,
    jobs: Jobs = 1,
    nodes: NodesOfJob = 3,
    site_nodes: ClusterNodes = None,
    vqpus: VirtualQpus = None,
    quantum: QuantumSeconds = None,
    cluster: LearnFrom = None,
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Predict how long jobs of a program take, from its runs and without calling its tasks.

    Example: qtide predict program.py --jobs 2 --nodes 4 --strategy elastic
    """
    from qtide.twin.calibration import calibrate as fit
    from qtide.twin.calibration import kept_agents
    from qtide.twin.prediction import PredictionCase
    from qtide.twin.prediction import predict as predicted

    for name in strategy or ():
        STRATEGIES.load(name)  # rejects unknown names
    folders = _folders(names, words or [], runs, cluster)
    if len({each.spec.program for each in folders}) > 1:
        raise UsageError("the runs are of different programs; name runs of one")
    ledgers = [_ended(each) for each in folders]
    site, taught = site_nodes or nodes, not is_virtual(folders[-1].spec)
    kept = kept_agents(folders[-1].spec)
    cases = [
        PredictionCase(name, jobs, nodes, site, vqpus or jobs, quantum, taught, kept)
        for name in strategy or strategy_names()
    ]
    found = [predicted(ledgers, case) for case in cases]
    fitted = fit(ledgers, keeps_agents=kept)
    if json:
        as_json(
            {
                "predictions": [asdict(each) for each in found],
                "runs": [_named(each, runs) for each in folders],
                "doubts": fitted.doubts(),
                "advice": fitted.advice(),
            }
        )
        return
    print_rows([_predicted_row(each) for each in found])
    rests = ", ".join(f"{_named(each, runs)} ({each.spec.strategy})" for each in folders)
    say(f"from {rests}; no task was called; in brackets, the 95 % interval")
    for doubt in fitted.doubts():
        say(f"doubtful: {doubt}")
    if fitted.advice():
        say(fitted.advice())


def _predicted_row(found: Prediction) -> dict[str, str]:
    return {
        "strategy": found.case.strategy,
        "wall s": _interval(found.wall),
        "node-s": _interval(found.node_seconds),
    }


def _folders(names: str, words: list[str], runs: Path, cluster: str | None) -> list[RunFolder]:
    """Find the named runs or, if a program is named, its runs."""
    from qtide.programs.program import APPS, located
    from qtide.twin.prediction import runs_to_learn_from

    is_program = names in APPS.names() or ":" in names or names.partition(":")[0].endswith(".py")
    if is_program and not (runs / names / "run.json").is_file():
        return runs_to_learn_from(located(names), words, runs, cluster)
    if words or cluster:
        raise UsageError(f"arguments and --cluster choose among runs of a program, not {names}")
    return [RunFolder.find(runs, name) for name in names.split(",")]


def _named(run: RunFolder, root: Path) -> str:
    """Return a run's name; that of a run in a comparison has the comparison's before it."""
    path, root = run.path.absolute(), root.absolute()
    return str(path.relative_to(root)) if path.is_relative_to(root) else run.name


def _interval(found: Range) -> str:
    if found.high - found.low < 0.005 * found.expected:
        return f"{found.expected:,.1f}"
    return f"{found.expected:,.1f} ({found.low:,.1f}–{found.high:,.1f})"


def _ended(run: RunFolder) -> list[Interval]:
    """Return the spans of a run that have ended."""
    return [span for span in run.intervals() if not span.open_ended]


Site = Annotated[
    Path,
    typer.Argument(metavar="SITE", help="Site file; docs/twin.md describes it.", dir_okay=False),
]
PACE = 10.0
"""Seconds between two lines of progress where there is no live line."""
Cores = Annotated[int, typer.Option(min=0, help="Cores to use; 0 for all.")]


def simulate(
    site: Site,
    strategy: Strategies = None,
    vqpus: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Virtual QPUs per QPU; may be repeated.  [default: 4]"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Policy of the vQPU service.  [default: the site file's, or fair]",
        ),
    ] = None,
    replications: Annotated[int, typer.Option(min=1, help="Replications of each case.")] = 3,
    cores: Cores = 0,
    page: Annotated[Path, typer.Option(help="File of the report.")] = Path("simulation.html"),
    json: shared_options.Json = False,
) -> None:
    """Simulate the whole workload of a site, including other users' jobs.

    Example: qtide simulate site.toml --strategy static --strategy elastic
    """
    from qtide.twin.simulation import StrategySetup
    from qtide.twin.simulation_page import write_page

    model = served(read_site(site), policy)
    for warning in site_warnings(model):
        warn(f"warning: {warning}")
    names = strategy or strategy_names()
    for name in names:
        STRATEGIES.load(name)  # rejects unknown names before anything is computed
    check_hybrids(model)
    setups = [StrategySetup(name, number) for name in names for number in vqpus or [4]]
    cases = _simulated(model, setups, replications, cores)
    write_page(page, f"{site.name}: {', '.join(dict.fromkeys(names))}", cases)
    if json:
        as_json({"page": str(page), "cases": [described(case) for case in cases]})
        return
    print_rows([row(case, model) for case in cases])
    say(f"report: {page}")


def site_warnings(model: SiteModel) -> list[str]:
    """Return warnings about traces that do not fit the site."""
    # Imported late: numpy takes 0.1 s.
    from qtide.twin.workload import warnings

    return warnings(model)


def check_hybrids(model: SiteModel) -> None:
    """Refuse a site without hybrid jobs."""
    if not (model.hybrid.jobs or model.hybrid.share or model.hybrid.marked):
        raise UsageError("the site has no hybrid jobs; set jobs or share in its [hybrid]")


def served(model: SiteModel, policy: str | None) -> SiteModel:
    """Return the site with a vQPU service, whether or not its file defines one."""
    from qtide.runs.served import checked_policy

    service = model.service or ServiceModel()
    return replace(model, service=replace(service, policy=checked_policy(policy or service.policy)))


def described(case: Scenario) -> dict[str, object]:
    """Return a case for JSON."""
    estimates = {
        name: {"mean": each.mean, "half": each.half} for name, each in case.estimates().items()
    }
    return {"strategy": case.setup.strategy, "vqpus": case.setup.vqpus} | estimates


def row(case: Scenario, model: SiteModel) -> dict[str, object]:
    """Return a case as a table row, without columns for what cannot happen on the site."""
    found = case.estimates()

    def shown(name: str, digits: int = 0) -> str:
        mean, half = found[name].mean, found[name].half
        return f"{mean:,.{digits}f}" + (f" ± {half:,.{digits}f}" if half else "")

    columns: dict[str, object] = {
        "strategy": case.setup.strategy,
        "vQPUs": case.setup.vqpus,
        "turnaround s": shown("turnaround"),
        "node-s": shown("node_seconds"),
        **({"charge": shown("charge")} if model.billing != Billing() else {}),
        "slowdown": shown("slowdown", 2),
        "fair": f"{found['fairness'].mean:.2f}",
        "QPU busy": f"{found['qpu_occupancy'].mean:.1%}",
        "idle, wanted": f"{found['qpu_idle_wanted'].mean:.1%}",
        "nodes held": f"{found['utilisation'].mean:.1%}",
        "kWh": f"{found['energy_kwh'].mean:.3g}",
    }
    if any(part.is_batch for part in model.parts()):
        columns["others wait s"] = shown("others_wait")
    if model.service is not None and model.service.longest is not None:
        columns["promised"] = f"{found['promises_made'].mean:.1%}"
        columns["kept"] = f"{found['promises_kept'].mean:.1%}"
    if model.can_fail or found["failed"].mean:
        columns["failed"] = f"{found['failed'].mean:g}"
    return columns


def _simulated(
    model: SiteModel, setups: list[StrategySetup], replications: int, cores: int
) -> list[Scenario]:
    from qtide.twin.replications import simulate as run

    with status(f"simulating {replications * len(setups)} replications", PACE) as update:
        return run(
            model,
            setups,
            replications,
            cores or len(os.sched_getaffinity(0)),
            lambda done, of: update(f"{done} of {of} replications simulated"),
        )
