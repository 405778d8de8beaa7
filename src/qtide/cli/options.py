"""The options that commands share: a word of help each; names and defaults are those of `Spec`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from qtide.clusters.local import Limits
from qtide.errors import UsageError
from qtide.options import declared
from qtide.programs.load import located
from qtide.runs.spec import Spec
from qtide.slurm.kind import SlurmOptions
from qtide.strategies.elastic_pool import ElasticOptions
from qtide.strategies.malleable import MalleableOptions

RUNS = Path("qtide-runs")
CORE = ("cluster", "nodes", "qpu", "vqpus", "time_scale", "seed")

Runs = Annotated[Path, typer.Option(envvar="QTIDE_RUNS", help="The folder in which runs are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Program = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM [ARGUMENTS]",
        help="FILE.py, FILE.py:NAME, MODULE:NAME, or an application's name; then its own "
        "arguments.",
    ),
]

HELP = {
    "cluster": "local or simulated (virtual time), with a size as in local:4; or slurm, with a "
    "partition as in slurm:compute.",
    "nodes": "The most nodes a job may hold. [default: all]",
    "qpu": "Timing: superconducting, neutral-atom, annealer, trapped-ion or photonic; or a device "
    "of a vQPU service, as http://HOST:PORT/DEVICE.",
    "vqpus": "How many virtual QPUs the device is shared as.",
    "time_scale": "How many seconds one second of the run's clock takes.",
    "seed": "The seed of everything random.",
    "expand_timeout": "malleable: seconds to wait for more nodes, then go on with fewer.",
    "favour": "elastic: what to save, `time` or `nodes`, or a number from 1 to 0.",
    "idle_share": "elastic: how long a node that came too early may idle, as a share of its use.",
    "memory": "local: megabytes of memory that a node may use.",
    "cores": "local: cores that a node may use.",
    "account": "slurm: the account that pays.",
    "qos": "slurm: the quality of service.",
    "constraint": "slurm: features that nodes need to have.",
    "time_limit": "slurm: how long nodes are held at a time, as sbatch's --time has it.",
    "salloc": "slurm: one more option of salloc, as --salloc=--reservation=R.",
    "qpu_by": "slurm: what a lease of the QPU is to Slurm: gres or licence (a job that holds "
    "qpu:1), or none of its business.",
    "qpu_partition": "slurm: the partition of those jobs.",
}


def takes_spec(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a program and the options of a run in place of its parameter `spec`."""
    own = inspect.signature(command, eval_str=True).parameters
    merged = [*_shared(), *(each for name, each in own.items() if name != "spec")]

    @wraps(command)
    def with_options(context: typer.Context, program: str, **given: Any) -> None:
        shared = {name: given.pop(name) for name in HELP}
        shared["favour"] = _favour(shared["favour"])
        if shared["memory"] is not None:
            shared["memory"] *= 2**20
        core = {name: shared.pop(name) for name in list(shared) if name in CORE}
        command(Spec(located(program), context.args, options=shared, **core), **given)

    by_keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in merged]
    signature = inspect.Signature(by_keyword)
    with_options.__signature__ = signature  # type: ignore[attr-defined]  # typer reads both
    with_options.__annotations__ = {each.name: each.annotation for each in by_keyword}
    return with_options


def _shared() -> Iterator[inspect.Parameter]:
    """What the command line has to give for a `Spec`."""
    kind = inspect.Parameter.KEYWORD_ONLY
    yield inspect.Parameter("context", kind, annotation=typer.Context)
    yield inspect.Parameter("program", kind, annotation=Program)
    types, usual = get_type_hints(Spec), Spec("")
    plugged = {
        each.name: each
        for plugin in (Limits, SlurmOptions, MalleableOptions, ElasticOptions)
        for each in declared(plugin)
    }
    for name, text in HELP.items():
        own = plugged.get(name)
        typed = own.type if own else types[name]
        default = own.default if own else getattr(usual, name)
        if name == "favour":
            typed, default = str, str(default)
        if name == "salloc":
            typed, default = list[str], []
        option = Annotated[typed, typer.Option(help=text)]  # type: ignore[valid-type]  # made here
        yield inspect.Parameter(name, kind, default=default, annotation=option)


def _favour(word: str) -> float:
    """`time` and `nodes` are the ends of a scale from 1 to 0."""
    try:
        value = {"time": 1.0, "nodes": 0.0}.get(word)
        value = float(word) if value is None else value
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--favour is time, nodes, or a number from 0 to 1, not {word!r}")
    return value
