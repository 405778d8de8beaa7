"""qtide prolog: what a cluster needs to give its jobs a token of the vQPU service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import options
from qtide.cli.console import as_json
from qtide.slurm.prolog.deployment import announce, deploy


def prolog(
    folder: Annotated[Path, typer.Argument(help="A path that all nodes of the cluster see.")],
    service: Annotated[str, typer.Option(metavar="URL", help="The vQPU service.")],
    ca: Annotated[
        Path | None, typer.Option(help="CA certificates to verify it by, if not the system's.")
    ] = None,
    munge_socket: Annotated[
        Path | None, typer.Option(help="The nodes' munged, if not the system's.")
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="The service's Unix socket, if it is on the jobs' own host.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write the prolog that gives jobs their tokens, and print how to configure Slurm for it.

    Example: qtide prolog /etc/slurm/qtide --service https://qpu.example:8037
    """
    program = deploy(folder.absolute())
    places = {"ca": ca, "munge_socket": munge_socket, "socket": socket}
    announce(program.parent, service, **{key: str(each or "") for key, each in places.items()})
    line = f"TaskProlog={program}"
    if json:
        as_json({"folder": str(program.parent), "slurm.conf": line})
    else:
        typer.echo(f"add to slurm.conf, then run `scontrol reconfigure`:\n{line}")
