"""The configuration file, read and checked: every mistake in it, and what would not start."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from qtide.backends.clusters.slurm.commands import Slurm, accounts_are_checked
from qtide.backends.clusters.slurm.licences import Licences
from qtide.backends.devices.device import Process, WorkerLost, make
from qtide.core.errors import QtideError, UsageError
from qtide.service.configuration import Configuration, DeviceSetup, sentence
from qtide.service.identities import people_of
from qtide.service.store import StoreFailed

MOST_ROUNDS = 10
"""Maximum number of checks, each without the entries that were wrong before."""
LIMIT = 60.0
"""Seconds that another Python has to say whether it knows a device."""
ASK = (
    "import json, sys\n"
    "from qtide.backends.devices.device import make\n"
    "from qtide.core.errors import QtideError\n"
    "try:\n    make(*json.load(sys.stdin))\n"
    "except QtideError as error:\n    sys.exit(str(error))\n"
)
"""Code for another Python, which exits with a sentence if it does not know the device."""
AT_ONCE = 2
"""Devices to start at a time, since vendors' packages are large."""


def read_configuration(file: Path) -> Configuration:
    """Read the configuration from a file, or raise a one-sentence `UsageError`."""
    found, mistakes = examined(file)
    if found is None or mistakes:
        more = f" ({len(mistakes) - 1} more: qtide serve --check {file})" if mistakes[1:] else ""
        raise UsageError(f"the configuration {file} is wrong: {mistakes[0]}{more}")
    return found


def examined(file: Path) -> tuple[Configuration | None, list[str]]:
    """Read a file: return its configuration, or None if it is invalid, and all its mistakes."""
    try:
        entries = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"the configuration {file} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the configuration {file} cannot be read: {error}") from None
    mistakes: list[str] = []
    for _ in range(MOST_ROUNDS):
        try:
            found = Configuration(**entries)
        except ValidationError as error:
            mistakes += [sentence(each) for each in error.errors()]
            # without the wrong entries, the next check may find more
            removed = [_take_out(entries, each) for each in error.errors()]
            if not all(removed):
                return None, mistakes
        else:
            more = [*mistakes, *_mistakes(found)]
            return (None if mistakes else found), more
    return None, mistakes


def _take_out(entries: dict[str, Any], error: ErrorDetails) -> bool:
    """Remove a wrong entry; return whether there was one to remove."""
    if not error["loc"]:  # the entries contradict each other: it listens beyond the loopback
        return entries.pop("listen", None) is not None
    *above, last = error["loc"]
    part: Any = entries
    for name in above:
        if not isinstance(part, dict) or name not in part:
            return True
        if isinstance(part[name], list):
            del part[name]
            return True
        part = part[name]
    if error["type"] == "missing":
        return len(above) > 0 and _take_out(entries, {**error, "loc": tuple(above), "type": ""})
    return isinstance(part, dict) and part.pop(last, None) is not None


def _mistakes(configuration: Configuration) -> Iterator[str]:
    for name, setup in configuration.devices.items():
        for mistake in _mistakes_of(setup):
            yield f"devices.{name}: {mistake}"
    if configuration.slurm and configuration.slurm.conf:
        yield from _unreadable("slurm.conf", configuration.slurm.conf)
    if configuration.slurm and configuration.slurm.certificate:
        yield from _unreadable("slurm.certificate", configuration.slurm.certificate)
    try:
        people_of(configuration.identities)
    except UsageError as error:
        yield str(error)
    if configuration.certificate and configuration.key:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(configuration.certificate, configuration.key)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            yield f"certificate and key cannot be used: {why}"


def _mistakes_of(setup: DeviceSetup) -> Iterator[str]:
    """Report unknown kinds and options, using the device's Python, and unreadable files."""
    try:
        _ask(setup.python, setup) if setup.python else make(setup.kind, setup.options)
    except QtideError as error:
        keys = DeviceSetup.model_fields
        near = [each for name in setup.options for each in get_close_matches(name, keys, 1, 0.75)]
        yield f"{error}{f'; did you mean {near[0]}?' if near else ''}"
        return
    if setup.at_once > 1 and setup.profile is None:
        yield "at_once needs a profile, which says how long tasks take that divide the time"
    for name, value in setup.options.items():
        if name.endswith("_file") and value is not None:
            yield from _unreadable(name, Path(value))


def _ask(python: str, setup: DeviceSetup) -> None:
    """Make the device in another Python, to see whether that works."""
    words = json.dumps([setup.kind, setup.options], default=str)
    try:
        done = subprocess.run(
            [python, "-c", ASK], input=words, capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{python} cannot be started: {why}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{python} did not end within {LIMIT:g} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise UsageError(f"{python}: {said[-1]}")


def _unreadable(name: str, file: Path) -> Iterator[str]:
    try:
        known = file.is_file()
    except (OSError, ValueError):  # it cannot be the name of a file
        known = False
    if not known:
        yield f"{name}: there is no file {file}"
    elif not os.access(file, os.R_OK):
        yield f"{name}: {file} cannot be read by this user"


def troubles(configuration: Configuration) -> list[str]:
    """What would not work, one sentence per problem."""
    return [*asyncio.run(_devices(configuration)), *_slurm(configuration)]


async def _devices(configuration: Configuration) -> list[str]:
    places = asyncio.Semaphore(AT_ONCE)
    started = [_start(places, *each) for each in configuration.devices.items()]
    return [trouble for trouble in await asyncio.gather(*started) if trouble is not None]


async def _start(places: asyncio.Semaphore, name: str, setup: DeviceSetup) -> str | None:
    """Start a device as the service would, and end it; return the problem, if any."""
    async with places:
        with tempfile.TemporaryFile() as log:
            try:
                worker = await Process.start(setup.kind, setup.options, setup.python, log)
            except WorkerLost as error:
                log.seek(0)
                last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
                return f"devices.{name}: {error}" + (f" ({last})" if last else "")
            await worker.end()
    return None


def _slurm(configuration: Configuration) -> Iterator[str]:
    if configuration.slurm is None:
        return
    slurm = Slurm(configuration.slurm.conf)
    try:
        slurm.check()
        slots = sum(each.slots for each in configuration.devices.values())
        licences = asyncio.run(Licences(slurm, configuration.slurm.licence).total())
        if slots < licences:
            yield (
                f"slurm: there are {licences} licences {configuration.slurm.licence}, but the "
                f"devices have {slots} slots; some jobs will be refused"
            )
    except QtideError as error:
        yield f"slurm: {error}"


def unreachable(configuration: Configuration) -> str | None:
    """Warn of a database that does not let this user in, here and now."""
    if configuration.store is None:
        return None
    from qtide.service.postgresql import PostgresDatabase  # its driver is an extra

    try:
        PostgresDatabase(configuration.store).close()
    except StoreFailed as error:
        return str(error)
    return None


async def without_effect(configuration: Configuration) -> str | None:
    """Warn of settings by account that have no effect because Slurm does not check accounts."""
    named = bool(configuration.fair.shares or configuration.quotas.accounts)
    slurm = configuration.slurm
    if slurm is None or slurm.trust_accounts or not named:
        return None
    try:
        if await accounts_are_checked(Slurm(slurm.conf)):
            return None
    except QtideError:
        return None
    return (
        "shares and quotas of accounts have no effect on Slurm's jobs: Slurm does not check who "
        "may use which account (AccountingStorageEnforce), so jobs have none here; let it check "
        "them, or set trust_accounts = true in [slurm]"
    )
