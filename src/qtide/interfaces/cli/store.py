"""qtide store: check, back up, restore and move what the service has stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import Locked, lock
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.serve import State, existing_state, usual_state

if TYPE_CHECKING:
    from qtide.service.store import ClosableDatabase

store = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Check, back up, restore and move the store of the service. Run it on the service's host.",
)


@store.command("check", cls=PlainCommand)
def check(state: State = None, json: shared_options.Json = False) -> None:
    """Check the store, also while the service runs.

    Example: qtide store check
    """
    from qtide.service.archive import counts, faults
    from qtide.service.store import open_database

    with closing(open_database(existing_state(state))) as database:
        found, rows = faults(database), counts(database)
    if json:
        as_json({"faults": found, "rows": rows})
    else:
        for each in found:
            say(f"wrong: {each}")
        say(f"{_words(rows)}; {'nothing is wrong' if not found else 'restore a backup'}")
    if found:
        raise typer.Exit(1)


@store.command("backup", cls=PlainCommand)
def backup(
    file: Annotated[Path, typer.Argument(help="New file, a SQLite database.")],
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Copy the store, as of one moment, to a file; the service may go on meanwhile.

    Example: qtide store backup monday.sqlite
    """
    from qtide.service.archive import copy
    from qtide.service.store import connect, open_database

    if file.exists():
        raise UsageError(f"{file} exists; name a new file")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    try:
        with (
            closing(open_database(existing_state(state))) as source,
            closing(connect(part)) as target,
        ):
            copied = copy(source, target)
            target.execute("PRAGMA journal_mode=DELETE")  # one file, to be moved anywhere
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.rename(file)
    as_json({"file": str(file), "rows": copied}) if json else say(f"{file}: {_words(copied)}")


@store.command("restore", cls=PlainCommand)
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `qtide store backup` wrote.")],
    to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Restore to this PostgreSQL database, not to a file."),
    ] = None,
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Copy a backup to an empty store, before the service starts.

    Example: qtide store restore monday.sqlite --state /var/lib/qtide
    """
    from qtide.service.store import connect

    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    with closing(connect(file)) as source:
        _move(source, to, (state or usual_state()).expanduser(), json=json)


@store.command("migrate", cls=PlainCommand)
def migrate(
    to: Annotated[
        str, typer.Argument(metavar="TARGET", help="URL of a PostgreSQL database, or a folder.")
    ],
    state: State = None,
    json: shared_options.Json = False,
) -> None:
    """Copy the store of a stopped service to another, empty database. The old one stays.

    Then name the new one in the configuration, as `store` or `state`, and start the service. To go
    back, start it with the old configuration.

    Example: qtide store migrate postgresql://db.example.org/qtide
    """
    from qtide.service.configuration import database_url
    from qtide.service.store import open_database

    folder = existing_state(state)
    if "://" in to:
        try:
            database_url(to)
        except ValueError as error:
            raise UsageError(str(error)) from None
    with _stopped(folder), closing(open_database(folder)) as source:
        if "://" in to:
            _move(source, to, folder, json=json)
        else:
            _move(source, None, Path(to).expanduser(), json=json)


def _move(source: ClosableDatabase, url: str | None, folder: Path, *, json: bool) -> None:
    from qtide.service.archive import copy
    from qtide.service.store import FILE, connect

    if url is None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _stopped(folder), closing(connect(folder / FILE)) as target:
            copied, place = copy(source, target), str(folder / FILE)
    else:
        from qtide.service.postgresql import connect as connect_to_server

        with closing(connect_to_server(url)) as server:
            copied, place = copy(source, server), url
    as_json({"store": place, "rows": copied}) if json else say(f"{place}: {_words(copied)}")


@contextmanager
def _stopped(folder: Path) -> Iterator[None]:
    """Hold the lock of a service's folder; fail if a service runs there."""
    with os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "rb+") as file:
        try:
            lock(file.fileno())
        except Locked:
            raise QtideError(f"a service uses {folder}; stop it first") from None
        yield


def _words(rows: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in rows.items())
