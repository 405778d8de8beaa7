"""qtide box: a real Slurm cluster on this computer."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from qtide import box as boxes
from qtide.backends.clusters.kind import CLUSTERS
from qtide.backends.clusters.slurm.deployment import announce, deploy
from qtide.core.errors import QtideError
from qtide.core.resources import EXAMPLE
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, warn
from qtide.interfaces.cli.console import status as status_line
from qtide.interfaces.cli.help import PlainCommand, PlainGroup

box = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Run a real Slurm cluster on this computer, apart from any other Slurm.",
)

Name = Annotated[str, typer.Option(help="Name of the box; boxes with different names can coexist.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the box; with --name, it is NAME within that folder.  "
        "[default: ~/.local/state/qtide/box/NAME]"
    ),
]
Release = Annotated[
    str | None,
    typer.Option(
        envvar="QTIDE_BOX_RELEASE",
        show_envvar=False,
        autocompletion=lambda: [boxes.INSTALLED, *boxes.RELEASES],
        help="Slurm of a Debian release, fetched once: bookworm (22.05), trixie (24.11), "
        "forky (26.05).  [default: the Slurm that is installed]",
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar=EXAMPLE,
        help="Nodes of another kind, in a partition with its name; may be repeated. GPUs are "
        "only counted.",
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="vQPU service for its jobs; can be set again while the box is up."
    ),
]
Licences = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME:NUMBER", help="One more licence, as qpu_star:4; repeatable."),
]
Auth = Annotated[
    str | None,
    typer.Option(help="How Slurm proves itself: munge, or slurm.  [default: by release]"),
]
DEFAULT = "default"


@box.command("up", cls=PlainCommand)
def up(
    name: Name = DEFAULT,
    folder: Folder = None,
    nodes: Annotated[int, typer.Option(help="Nodes of the partition `compute`.")] = 3,
    qpus: Annotated[
        int, typer.Option(help="Virtual QPUs of the partition `quantum`: gres and licences.")
    ] = 1,
    accounting: Annotated[
        bool, typer.Option("--accounting", help="Run slurmdbd and a private MariaDB as well.")
    ] = False,
    service: Service = None,
    release: Release = None,
    licence: Licences = None,
    auth: Auth = None,
    kind: Kinds = None,
    json: shared_options.Json = False,
) -> None:
    """Start a box, and wait until its nodes accept jobs.

    Example: qtide box up --nodes 4 --qpus 2 && eval "$(qtide box env)" && sinfo
    """
    place = _place(name, folder)
    if folder and name != DEFAULT:
        boxes.give_name(place, name)
    with status_line("starting the box", pace=1.0) as tell:
        there = boxes.up(
            place,
            nodes,
            qpus,
            accounting,
            service=service,
            release=release,
            auth=auth,
            kinds=kind or (),
            licences=licence or (),
            tell=tell,
        )
    _show(there, _words(name, folder), json_wanted=json)


@box.command("down", cls=PlainCommand)
def down(name: Name = DEFAULT, folder: Folder = None, json: shared_options.Json = False) -> None:
    """Stop a box and everything that runs on it, and remove its folder.

    Example: qtide box down
    """
    place = _place(name, folder)
    boxes.down(place)
    if json:
        as_json({"folder": str(place), "up": False})
    else:
        say(f"the box in {place} is gone")


@box.command("status", cls=PlainCommand)
def status(name: Name = DEFAULT, folder: Folder = None, json: shared_options.Json = False) -> None:
    """Show the daemons and nodes of a box; exit code 1 unless it is up.

    Example: qtide box status --json
    """
    there = boxes.status(_place(name, folder))
    _show(there, _words(name, folder), json_wanted=json)
    if not there.up:
        raise QtideError(f"the box in {there.folder} is not up; start it again: qtide box up")


@box.command("env", cls=PlainCommand)
def env(name: Name = DEFAULT, folder: Folder = None, json: shared_options.Json = False) -> None:
    """Print the exports that make Slurm's commands and qtide use the box.

    Example: eval "$(qtide box env)"
    """
    variables = boxes.env(_place(name, folder))
    if json:
        as_json(variables)
    else:
        for key, value in variables.items():
            say(f"export {key}={shlex.quote(value)}")


def _place(name: str, folder: Path | None) -> Path:
    return folder.absolute() if folder else boxes.default_folder(name)


def _words(name: str, folder: Path | None) -> str:
    """Return the option that names this box."""
    if name != DEFAULT:
        return f" --name {shlex.quote(name)}"
    return f" --folder {shlex.quote(str(folder))}" if folder else ""


def _show(there: boxes.Status, words: str, *, json_wanted: bool) -> None:
    if json_wanted:
        as_json(_described(there))
        return
    running = ", ".join(f"{number} {name}" for name, number in sorted(there.daemons.items()))
    nodes = ", ".join(f"{name} {state}" for name, state in sorted(there.nodes.items()))
    say(f"box in {there.folder}: {running or 'nothing runs'}")
    say(f"nodes: {nodes or 'Slurm does not answer'}")
    if there.up:
        say(f'use it with: eval "$(qtide box env{words})"')


def _described(there: boxes.Status) -> dict[str, Any]:
    plan = asdict(there.plan)
    del plan["ports"], plan["slurmd_timeout"]
    states = {"up": there.up, "daemons": there.daemons, "states": there.nodes}
    return {"folder": str(there.folder)} | plan | states | {"env": boxes.env(there.folder)}


class ProofKind(StrEnum):
    """What proves a job's user to the service."""

    MUNGE = "munge"
    JWT = "jwt"


def prolog(
    folder: Annotated[Path, typer.Argument(help="Folder that all nodes of the cluster see.")],
    service: Annotated[str, typer.Option(metavar="URL", help="URL of the vQPU service.")],
    ca: Annotated[
        Path | None, typer.Option(help="CA certificates of the service, if not the system's.")
    ] = None,
    munge_socket: Annotated[
        Path | None, typer.Option(help="Socket of munged on the nodes, if not the system's.")
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(help="Unix socket of the service, if it runs on the nodes themselves."),
    ] = None,
    auth: Annotated[
        ProofKind,
        typer.Option(help="What proves a job's user: munge, or a Slurm token where there is none."),
    ] = ProofKind.MUNGE,
    json: shared_options.Json = False,
) -> None:
    """Write the prolog that gives jobs their tokens; print the line for slurm.conf.

    Example: qtide prolog /etc/slurm/qtide --service https://qpu.example:8037
    """
    program = deploy(folder.absolute())
    places = {"ca": ca, "munge_socket": munge_socket, "socket": socket}
    words = {key: str(each.absolute() if each else "") for key, each in places.items()}
    if ca is not None and not ca.is_file():
        warn(f"there is no file {ca} here; every node needs it")
    words["auth"] = "" if auth is ProofKind.MUNGE else auth
    announce(program.parent, service, **words)
    line = f"TaskProlog={program}"
    if json:
        as_json({"folder": str(program.parent), "slurm.conf": line})
    else:
        say(f"add to slurm.conf, then run `scontrol reconfigure`:\n{line}")


def reap(json: shared_options.Json = False) -> None:
    """Cancel your cluster jobs whose qtide driver on this host is dead.

    Example: qtide reap
    """
    ended = [job for name in CLUSTERS.names() for job in CLUSTERS.load(name).reap()]
    if json:
        as_json({"cancelled": ended})
    else:
        say(f"cancelled: {', '.join(map(str, ended)) or 'nothing was left'}")
