"""qtide serve: the vQPU service, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli.console import err
from qtide.errors import UsageError


def serve(
    configuration: Annotated[
        Path | None, typer.Argument(help="A TOML file: devices, policies, quotas, APIs.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Emulated devices on the loopback, without tokens.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(help="Address and port in place of the file's, such as 127.0.0.1:8037."),
    ] = None,
) -> None:
    """Serve QPUs to many jobs at once, until interrupted. The log goes to stderr, as JSON.

    Example: qtide serve --demo
    """
    try:
        from qtide.service.configuration import demonstration, read_configuration
        from qtide.service.server import serve as run
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing: in a clone of qtide: pip install '.[serve]'"
        ) from None
    if demo == (configuration is not None):
        raise UsageError("give either a configuration or --demo")
    settings = demonstration() if configuration is None else read_configuration(configuration)
    if listen:
        settings = settings.listening(listen)
    err.print(f"state, log and access are in {settings.folder}", markup=False)
    run(settings)
