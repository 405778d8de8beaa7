"""qtide engine: workflow engines, each in an environment of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from qtide.cli.console import as_json, out
from qtide.cli.help import PlainCommand, PlainGroup
from qtide.cli.options import Json
from qtide.errors import UsageError
from qtide.runs.engines import ENGINES

engine = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Workflow engines, each in an environment of its own.",
)


@engine.callback()
def _group() -> None:
    """Keep `install` a command of its own, although it is the only one."""


@engine.command("install", cls=PlainCommand)
def install(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="streamflow.")] = "streamflow",
    json: Json = False,
) -> None:
    """Install an engine for `qtide run --strategy workflow --engine NAME`, once per user.

    Example: qtide engine install streamflow
    """
    installed = getattr(ENGINES.load(name), "install", None)
    if installed is None:
        raise UsageError(f"qtide does not install the engine {name}; see its own documentation")
    place = str(installed())
    if json:
        as_json({"engine": name, "folder": place})
    else:
        out.print(f"{name} is in {place}", markup=False, highlight=False)
