"""The options that commands share, each declared once, under the names a run's description has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from qtide.errors import UsageError
from qtide.programs.load import located
from qtide.runs.spec import Spec

RUNS = Path("qtide-runs")

Runs = Annotated[Path, typer.Option(envvar="QTIDE_RUNS", help="The folder in which runs are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def spec_of(
    context: typer.Context,
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM [ARGUMENTS]",
            help="FILE.py, FILE.py:NAME, MODULE:NAME, or an application's name; then its own "
            "arguments.",
        ),
    ],
    *,
    cluster: Annotated[
        str,
        typer.Option(
            help="local or simulated (virtual time), with a size as in local:4; or slurm, with a "
            "partition as in slurm:compute."
        ),
    ] = "local",
    nodes: Annotated[
        int | None, typer.Option(help="The most nodes a job may hold. [default: all]")
    ] = None,
    qpu: Annotated[
        str,
        typer.Option(
            help="Timing: superconducting, neutral-atom, annealer, trapped-ion or photonic."
        ),
    ] = "superconducting",
    vqpus: Annotated[int, typer.Option(help="How many virtual QPUs the device is shared as.")] = 1,
    time_scale: Annotated[
        float, typer.Option(help="How many seconds one second of the run's clock takes.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The seed of everything random.")] = 0,
    expand_timeout: Annotated[
        float,
        typer.Option(help="malleable: seconds to wait for more nodes, then go on with fewer."),
    ] = 5.0,
    favour: Annotated[
        str,
        typer.Option(help="elastic: what to save, `time` or `nodes`, or a number from 1 to 0."),
    ] = "0.5",
    idle_share: Annotated[
        float,
        typer.Option(
            help="elastic: how long a node that came too early may idle, as a share of its use."
        ),
    ] = 0.1,
    memory: Annotated[
        int | None, typer.Option(help="local: megabytes of memory that a node may use.")
    ] = None,
    cores: Annotated[int | None, typer.Option(help="local: cores that a node may use.")] = None,
    account: Annotated[str | None, typer.Option(help="slurm: the account that pays.")] = None,
    qos: Annotated[str | None, typer.Option(help="slurm: the quality of service.")] = None,
    constraint: Annotated[
        str | None, typer.Option(help="slurm: features that nodes need to have.")
    ] = None,
    time_limit: Annotated[
        str,
        typer.Option(help="slurm: how long nodes are held at a time, as sbatch's --time has it."),
    ] = "60",
    salloc: Annotated[
        list[str] | None,
        typer.Option(help="slurm: one more option of salloc, as --salloc=--reservation=R."),
    ] = None,
    qpu_by: Annotated[
        str,
        typer.Option(
            help="slurm: what a lease of the QPU is to Slurm: gres or licence (a job that holds "
            "qpu:1), or none of its business."
        ),
    ] = "none",
    qpu_partition: Annotated[
        str, typer.Option(help="slurm: the partition of those jobs.")
    ] = "quantum",
) -> Spec:
    """What a run is, as far as these options say."""
    return Spec(
        program=located(program),
        words=context.args,
        cluster=cluster,
        nodes=nodes,
        qpu=qpu,
        vqpus=vqpus,
        time_scale=time_scale,
        seed=seed,
        expand_timeout=expand_timeout,
        favour=_favour(favour),
        idle_share=idle_share,
        memory=None if memory is None else memory * 2**20,
        cores=cores,
        account=account,
        qos=qos,
        constraint=constraint,
        time_limit=time_limit,
        salloc=salloc or [],
        qpu_by=qpu_by,
        qpu_partition=qpu_partition,
    )


def takes_spec(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run in place of its parameter `spec`."""
    shared = inspect.signature(spec_of, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters
    merged = [*shared.values(), *(each for name, each in own.items() if name != "spec")]

    @wraps(command)
    def with_options(**given: Any) -> None:
        spec = spec_of(**{name: given.pop(name) for name in shared})
        command(spec, **given)

    by_keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in merged]
    signature = inspect.Signature(by_keyword)
    with_options.__signature__ = signature  # type: ignore[attr-defined]  # typer reads both
    with_options.__annotations__ = {each.name: each.annotation for each in by_keyword}
    return with_options


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
