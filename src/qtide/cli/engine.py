"""qtide engine: workflow engines, each in an environment of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from qtide.cli.console import out
from qtide.cli.help import PlainCommand, PlainGroup
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
) -> None:
    """Install an engine for `qtide run --strategy workflow --engine NAME`, once per user.

    Example: qtide engine install streamflow
    """
    install_it = getattr(ENGINES.load(name), "install", None)
    if install_it is None:
        raise UsageError(
            f"the engine {name} comes with its own installation; see its documentation"
        )
    out.print(f"{name} is in {install_it()}", markup=False, highlight=False)
