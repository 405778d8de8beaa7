"""qtide serve: the vQPU service, in the foreground."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from sqlite3 import Connection, Error
from typing import TYPE_CHECKING, Annotated

import typer

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import state_folder
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, err, out
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.service import clock, show_rows

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
    from qtide.service.configuration import read_configuration

    return _listening(read_configuration(file), listen)


def _listening(settings: Configuration, listen: str | None) -> Configuration:
    return settings.listening(listen) if listen else settings


def _check(file: Path | None) -> None:
    """Say everything that is wrong, one line each; nothing is served."""
    from qtide.service.configuration import examined
    from qtide.service.trial import troubles, without_effect

    if file is None:
        raise UsageError("--check needs a configuration: qtide serve --check FILE")
    found, mistakes = examined(file)
    if found is not None and not mistakes:
        mistakes = troubles(found)
    for mistake in mistakes:
        err.print(f"{file}: {mistake}", markup=False, highlight=False, soft_wrap=True)
    if found is not None and (warning := asyncio.run(without_effect(found))):
        err.print(f"{file}: warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    if mistakes:
        raise typer.Exit(UsageError.exit_code)
    out.print(f"{file} is in order: every device starts", markup=False, highlight=False)


DAY = 86_400.0

token = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Tokens for users outside Slurm, on the host of the service.",
)
State = Annotated[
    Path | None,
    typer.Option(
        help="The service's folder: `state` in its configuration.  "
        "[default: that of the service on this host]"
    ),
]


@token.command("new", cls=PlainCommand)
def new(
    user: Annotated[str, typer.Argument(help="The user. [default: you]")] = "",
    account: Annotated[str, typer.Option(help="The account that pays.")] = "",
    days: Annotated[float, typer.Option(help="How long it is valid.", min=0.0)] = 7.0,
    operator: Annotated[bool, typer.Option("--operator", help="For an operator.")] = False,
    name: Annotated[str, typer.Option(help="A note to recognise it by.")] = "",
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Create a token and print it: it cannot be shown again.

    Example: export QTIDE_TOKEN="$(qtide token new alice --days 30)"
    """
    from qtide.service.task import Caller
    from qtide.service.tokens import issue

    if not 0 <= days < inf:
        raise UsageError(f"--days is a number of days, not {days}")
    caller = Caller(user or getpass.getuser(), account, operator=operator)
    made, write = issue(caller, DAY * days, name)
    with _store(state) as store:
        write(store)
    if json:
        as_json({"token": made, "user": caller.user, "account": account, "days": days})
    else:
        typer.echo(made)


@token.command("list", cls=PlainCommand)
def list_tokens(state: State = None, json: shared_options.Json = False) -> None:
    """List the valid tokens, each by a prefix of its digest.

    Example: qtide token list
    """
    from qtide.service.tokens import operates, valid

    with _store(state) as store:
        rows = [
            {
                "token": each.digest[:12],
                "user": each.caller.user,
                "account": each.caller.account or None,
                "job": each.caller.job,
                "operator": operates(store, each.caller),
                "expires": each.expires if json else clock(each.expires),
                "name": each.name,
            }
            for each in valid(store)
        ]
    as_json(rows) if json else show_rows(rows, "there is no valid token")


@token.command("revoke", cls=PlainCommand)
def revoke(
    digest: Annotated[str, typer.Argument(help="A prefix of its digest, as listed.")],
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Revoke a token at once.

    Example: qtide token revoke 1f3b5c7d9e0a
    """
    from qtide.service.tokens import revoke as end

    if len(digest) < 8:
        raise UsageError("give at least 8 characters of the digest; see them: qtide token list")
    with _store(state) as store:
        ended = end(digest)(store)
    if not ended:
        raise UsageError(f"no token's digest begins with {digest}; see them: qtide token list")
    if json:
        as_json({"revoked": digest})
    else:
        out.print("revoked; the service forgets it within 2 s", markup=False)


@contextmanager
def _store(state: Path | None) -> Iterator[Connection]:
    from qtide.service.store import connect

    file = (state or _usual_state()).expanduser() / "store.sqlite"
    if not file.is_file():
        raise UsageError(
            f"there is no state of a service in {file.parent}; name its folder with --state"
        )
    try:
        with closing(connect(file)) as store:
            yield store
    except Error as error:  # the disk is full, or another process holds the file for long
        raise QtideError(f"{file} cannot be written: {error}") from None


def _usual_state() -> Path:
    """That of the service that runs here, otherwise that of this user's own."""
    from qtide.backends.client.access import here

    found = here()
    return found.state if found and found.state else state_folder() / "service"
