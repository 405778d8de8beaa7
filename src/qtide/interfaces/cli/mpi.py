"""qtide mpi: malleable programs in C, C++ and Fortran."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.mpi import build as libqtide
from qtide.runs.folder import RunFolder

mpi = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Build and run MPI programs in C, C++ and Fortran that grow and shrink.",
)


@mpi.command("build", cls=PlainCommand)
def build(
    to: Annotated[Path, typer.Option(help="Folder that gets include/ and lib/.")] = Path(
        "libqtide"
    ),
    cc: Annotated[str, typer.Option(help="C compiler of your MPI.")] = "mpicc",
    fc: Annotated[
        str | None,
        typer.Option(help="Fortran compiler of your MPI.  [default: the one beside --cc, if any]"),
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Build libqtide with your MPI, and write files for pkg-config and CMake.

    Example: qtide mpi build --to ~/libqtide --cc mpicc
    """
    files = libqtide.build(to.expanduser(), cc, fc)
    if json:
        as_json({"files": [str(each) for each in files]})
        return
    for each in files:
        say(str(each))
    if not any(each.suffix == ".mod" for each in files):
        say("without the Fortran module: name a compiler with --fc")
    say(f"use it: export PKG_CONFIG_PATH={to.expanduser().absolute()}/lib/pkgconfig")


@mpi.command(
    "run",
    cls=PlainCommand,
    # what comes after the program is the program's
    context_settings={"allow_interspersed_args": False, "allow_extra_args": True},
)
def run(
    context: typer.Context,
    program: Annotated[
        str, typer.Argument(help="A program that was linked with libqtide; its arguments follow.")
    ],
    cluster: Annotated[
        str, typer.Option(help="Where further ranks run: local, slurm or slurm:PARTITION.")
    ] = "local",
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("qtide-runs"),
    resume: Annotated[
        bool, typer.Option(help="Go on from what an interrupted run has saved.")
    ] = True,
    json: shared_options.Json = False,
) -> None:
    """Run a malleable program; it begins as one process and asks for nodes itself.

    Example: qtide mpi run --cluster slurm ./heat 100 1 3 2
    """
    found = shutil.which(program)
    if found is None:
        raise UsageError(f"{program} is not a program that can be run; compile it first")
    settings = {"QTIDE_CLUSTER": cluster, "QTIDE_RUNS": str(runs.absolute())}
    os.environ |= settings | {"QTIDE_RESUME": str(int(resume))}
    os.environ.setdefault("UCX_LOG_LEVEL", "error")  # it warns about what lost nodes leave behind
    if not json:
        os.execv(found, [program, *context.args])
    done = subprocess.run([found, *context.args], stdout=sys.stderr, check=False)
    as_json({"exit_code": done.returncode, "run": RunFolder.find(runs, "last").name})
    raise typer.Exit(done.returncode)
