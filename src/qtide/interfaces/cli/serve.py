"""qtide serve: the vQPU service, in the foreground."""

from __future__ import annotations

import asyncio
import getpass
import json as json_text
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from sqlite3 import Error
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import state_folder, write_whole
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, warn
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.service import clock, moment, show_rows

if TYPE_CHECKING:
    from qtide.service.audit import AuditTrail
    from qtide.service.configuration import Configuration
    from qtide.service.store import Database


def serve(
    configuration: Annotated[
        Path | None, typer.Argument(help="TOML file with devices, policies, quotas and APIs.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve emulated devices on the loopback, without tokens.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(help="Address and port, as 127.0.0.1:8037; replaces the file's."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only check the configuration and start each device once."),
    ] = False,
) -> None:
    """Serve QPUs to many jobs at once, until interrupted. The log goes to stderr, as JSON.

    Example: qtide serve --demo

    SIGHUP makes it reload its configuration.
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
    warn(f"state, log and access are in {settings.folder}")
    run(settings, reread)


def _read(file: Path, listen: str | None) -> Configuration:
    from qtide.service.configuration_check import read_configuration

    return _listening(read_configuration(file), listen)


def _listening(settings: Configuration, listen: str | None) -> Configuration:
    return settings.listening(listen) if listen else settings


def _check(file: Path | None) -> None:
    """Report all mistakes, one per line, without serving anything."""
    from qtide.service.configuration_check import (
        examined,
        troubles,
        unreachable,
        without_effect,
    )

    if file is None:
        raise UsageError("--check needs a configuration: qtide serve --check FILE")
    found, mistakes = examined(file)
    if found is not None and not mistakes:
        mistakes = troubles(found)
    for mistake in mistakes:
        warn(f"{file}: {mistake}")
    if found is not None:
        for warning in filter(None, (unreachable(found), asyncio.run(without_effect(found)))):
            warn(f"{file}: warning: {warning}")
    if mistakes:
        raise typer.Exit(UsageError.exit_code)
    say(f"{file} is valid, and every device starts")


DAY = 86_400.0
MOST_DAYS = 36_500

token = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Manage tokens for users outside Slurm. Run it on the host of the service.",
)
State = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the service (`state` in its configuration).  "
        "[default: that of QTIDE_URL, or of the service on this host]"
    ),
]


@token.command("new", cls=PlainCommand)
def new(
    user: Annotated[
        str | None, typer.Argument(help="User of the token.  [default: you]", show_default=False)
    ] = None,
    account: Annotated[str, typer.Option(help="Account that is charged.")] = "",
    days: Annotated[float, typer.Option(help="Days until it expires.", min=0.0)] = 7.0,
    operator: Annotated[
        bool, typer.Option("--operator", help="Give the token operator rights.")
    ] = False,
    name: Annotated[str, typer.Option(help="Note to recognise the token by.")] = "",
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it to this file, readable only by you (0600)."),
    ] = None,
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Create a token, and print it or write it to a file. It cannot be shown again.

    Example: qtide token new alice --days 30 --to alice.token
    """
    from qtide.service.task import Caller, is_name
    from qtide.service.tokens import digest, issue, short

    if not 0 < days <= MOST_DAYS:
        raise UsageError(f"--days is a number of days up to {MOST_DAYS}, not {days:g}")
    if user is not None and not user.strip():
        raise UsageError("the user's name is empty; leave it out for a token of your own")
    caller = Caller(user or getpass.getuser(), account, operator=operator)
    for each in filter(None, (caller.user, account)):
        if not is_name(each):
            raise UsageError(f"{each!r} cannot be the name of a user or an account; choose another")
    made, write = issue(caller, DAY * days, name)
    with _store(state) as store:
        if to is not None:
            _keep_secret(to, made)
        write(store)
    _audit("token made", state, token=short(digest(made)), user=caller.user, operator=operator)
    _warn_of(account, state)
    described = {"user": caller.user, "account": account, "days": days}
    if to is not None:
        if json:
            as_json(described | {"file": str(to)})
        else:
            say(f"the token of {caller.user} is in {to}, readable only by you")
    elif json:
        as_json({"token": made} | described)
    else:
        say(made)


def _keep_secret(file: Path, token: str) -> None:
    try:
        write_whole(file, f"{token}\n".encode(), mode=0o600)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def _warn_of(account: str, state: Path | None) -> None:
    """Warn if the service, where it runs, does not know the account of a new token."""
    from qtide.backends.client.access import FILE, UNIX
    from qtide.backends.client.client import Client

    try:
        place = json_text.loads((existing_state(state) / FILE).read_text())["socket"]
        known = Client(f"{UNIX}{place}", patience=0.0).call("GET", "/v1/shares")["known"]
    except (OSError, ValueError, KeyError, QtideError):
        return
    if account and account not in known:
        near = get_close_matches(account, known, 1)
        warn(
            f"the service has no share, quota, allocation or usage of an account {account!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )


@token.command("list", cls=PlainCommand)
def list_tokens(state: State = None, json: shared_options.Json = False) -> None:
    """List valid tokens, each by a prefix of its digest.

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
    digest: Annotated[
        str, typer.Argument(help="Prefix of the digest, as `qtide token list` shows it.")
    ],
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
    if ended:
        _audit("token revoked", state, token=digest[:12])
    if not ended:
        raise UsageError(f"no token's digest begins with {digest}; see them: qtide token list")
    if json:
        as_json({"revoked": digest})
    else:
        say("revoked; the service refuses it within 2 s")


def _audit(event: str, state: Path | None, **more: Any) -> None:
    """Record what a command did to the service's tokens."""
    from qtide.service.audit import ORIGIN

    ORIGIN.set(f"uid {os.getuid()}")
    _trail(state).record(event, getpass.getuser(), **more)


def _trail(state: Path | None) -> AuditTrail:
    from qtide.service.audit import AuditTrail

    return AuditTrail(existing_state(state) / "audit")


def audit(
    since: Annotated[
        str | None, typer.Option(help="Start: a date such as 2026-03-01, or days ago such as 7d.")
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="Only events with these words, such as token.")
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this user did.")] = None,
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Show who did what to the service: tokens, drains, reloads, cancels, refusals.

    Run it on the host of the service.

    Example: qtide audit --since 7d --event token
    """
    begin = moment(since) or 0.0
    rows = [
        each
        for each in _trail(state).entries()
        if each["time"] >= begin
        and (event is None or event in each["event"])
        and actor in (None, each["actor"])
    ]
    if json:
        as_json(rows)
        return
    shown = ("time", "event", "actor", "origin", "reason")
    show_rows(
        [
            {name: clock(each[name]) if name == "time" else each[name] for name in shown}
            | {"what": ", ".join(f"{k} {v}" for k, v in each.items() if k not in shown and v)}
            for each in rows
        ],
        "nothing of that kind was recorded",
    )


@contextmanager
def _store(state: Path | None) -> Iterator[Database]:
    from qtide.service.store import open_database

    folder = (state or usual_state()).expanduser()
    try:
        with closing(open_database(folder)) as store:
            yield store
    except Error as error:  # the disk is full, or another process keeps the file locked
        raise QtideError(f"the store in {folder} cannot be written: {error}") from None


def existing_state(state: Path | None) -> Path:
    """Return the state folder that was named, or the usual one; refuse one that is not there."""
    folder = (state or usual_state()).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"there is no state of a service in {folder}; name its folder with --state"
        )
    return folder


def usual_state() -> Path:
    """Return the state folder of the service that QTIDE_URL names, or of the local one."""
    from qtide.backends.client.access import UNIX, URL, here

    url = os.environ.get(URL, "").rstrip("/")
    found = here(url)
    if found and found.state:
        return found.state
    beside = Path(url.removeprefix(UNIX)).parent  # the socket is in the state folder
    if url.startswith(UNIX) and (beside / "store.sqlite").is_file():
        return beside
    if url:
        raise UsageError(
            f"no service on this host listens at {url} (QTIDE_URL); log in to the host of the "
            "service, or name the folder of its state with --state"
        )
    return state_folder() / "service"
