"""qtide serve: the vQPU service, in the foreground."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qtide.cli.console import err, out
from qtide.errors import UsageError

if TYPE_CHECKING:
    from qtide.service.configuration import Configuration


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
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only check the configuration, and whether each device starts."
        ),
    ] = False,
) -> None:
    """Serve QPUs to many jobs at once, until interrupted. The log goes to stderr, as JSON.

    Example: qtide serve --demo

    A SIGHUP makes it read its configuration again.
    """
    try:
        from qtide.service.configuration import demonstration
        from qtide.service.server import serve as run
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing: in a clone of qtide: pip install '.[serve]'"
        ) from None
    if demo == (configuration is not None):
        raise UsageError("give either a configuration or --demo")
    if check:
        _check(configuration)
        return
    reread = None if configuration is None else partial(_read, configuration, listen)
    settings = reread() if reread else _listening(demonstration(), listen)
    err.print(f"state, log and access are in {settings.folder}", markup=False)
    run(settings, reread)


def _read(file: Path, listen: str | None) -> Configuration:
    from qtide.service.configuration_file import read_configuration

    return _listening(read_configuration(file), listen)


def _listening(settings: Configuration, listen: str | None) -> Configuration:
    return settings.listening(listen) if listen else settings


def _check(file: Path | None) -> None:
    """Say everything that is wrong, one line each; nothing is served."""
    from qtide.service.configuration_file import examined
    from qtide.service.trial import troubles

    if file is None:
        raise UsageError("--check needs a configuration: qtide serve --check FILE")
    found, mistakes = examined(file)
    if found is not None and not mistakes:
        mistakes = troubles(found)
    for mistake in mistakes:
        err.print(f"{file}: {mistake}", markup=False, highlight=False, soft_wrap=True)
    if mistakes:
        raise typer.Exit(UsageError.exit_code)
    out.print(f"{file} is in order: every device starts", markup=False, highlight=False)
