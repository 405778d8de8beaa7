"""The file of a configuration: read and checked as a whole, before anything starts or changes."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from qtide.devices.kinds import make
from qtide.errors import QtideError, UsageError
from qtide.service.configuration import Configuration, DeviceSetup, sentence

LIMIT = 60.0
"""Seconds within which another Python has to say whether it knows a device."""
ASK = (
    "import json, sys\n"
    "from qtide.devices.kinds import make\n"
    "from qtide.errors import QtideError\n"
    "try:\n    make(*json.load(sys.stdin))\n"
    "except QtideError as error:\n    sys.exit(str(error))\n"
)
"""What another Python is asked: it ends with a sentence if it does not know the device."""


def read_configuration(file: Path) -> Configuration:
    """The configuration in a file; a mistake in it raises an error of one sentence."""
    found, mistakes = examined(file)
    if found is None or mistakes:
        more = f" ({len(mistakes) - 1} more: qtide serve --check {file})" if mistakes[1:] else ""
        raise UsageError(f"the configuration {file} is wrong: {mistakes[0]}{more}")
    return found


def examined(file: Path) -> tuple[Configuration | None, list[str]]:
    """The configuration in a file, unless it cannot be understood, and every mistake in it."""
    try:
        entries = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"the configuration {file} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the configuration {file} cannot be read: {error}") from None
    try:
        found = Configuration(**entries)
    except ValidationError as error:
        return None, [sentence(each) for each in error.errors()]
    return found, list(_mistakes(found))


def _mistakes(configuration: Configuration) -> Iterator[str]:
    for name, setup in configuration.devices.items():
        for mistake in _mistakes_of(setup):
            yield f"devices.{name}: {mistake}"
    if configuration.slurm and configuration.slurm.conf:
        yield from _unreadable("slurm.conf", configuration.slurm.conf)
    if configuration.certificate and configuration.key:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(configuration.certificate, configuration.key)
        except (OSError, ssl.SSLError) as error:
            yield f"certificate and key cannot be used: {error.strerror or error}"


def _mistakes_of(setup: DeviceSetup) -> Iterator[str]:
    """Unknown kinds and options, by the Python that has the device; files that cannot be read."""
    try:
        _ask(setup.python, setup) if setup.python else make(setup.kind, setup.options)
    except QtideError as error:
        yield str(error)
        return
    for name, value in setup.options.items():
        if name.endswith("_file") and value is not None:
            yield from _unreadable(name, Path(value))


def _ask(python: str, setup: DeviceSetup) -> None:
    """Have another Python make the device."""
    words = json.dumps([setup.kind, setup.options], default=str)
    try:
        done = subprocess.run(
            [python, "-c", ASK], input=words, capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"{python} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{python} did not end within {LIMIT:g} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise UsageError(f"{python}: {said[-1]}")


def _unreadable(name: str, file: Path) -> Iterator[str]:
    if not file.is_file():
        yield f"{name}: there is no file {file}"
    elif not os.access(file, os.R_OK):
        yield f"{name}: {file} cannot be read by this user"
