"""Where StreamFlow is: it pins the versions of all it needs, so it has an environment of its own.

A site's own installation is used as well, if a variable names it, or if it is on the PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from qtide.errors import QtideError, UsageError

VERSION = "0.2.0rc3"
REQUIREMENT = f"streamflow=={VERSION}"
"""The one that qtide is tested with."""
NAMED = "QTIDE_STREAMFLOW"
"""The variable that may name the command."""
LIMIT = 1200.0
"""Seconds for the installation."""
CONNECTOR = "streamflow-qtide"
PLACES = (Path(__file__).with_name(CONNECTOR), Path(__file__).parents[4] / "plugins" / CONNECTOR)
"""Where the connector's source is: in an installed qtide, and in its repository."""


def command() -> str:
    """The command that runs StreamFlow; UsageError says how to get it."""
    named = os.environ.get(NAMED)
    if named and shutil.which(named):
        return named
    if named:
        raise UsageError(f"{NAMED} names {named}, which is no command; correct it, or unset it")
    own = folder() / "bin" / "streamflow"
    found = str(own) if own.is_file() else shutil.which("streamflow")
    if found is None:
        raise UsageError("StreamFlow is not installed; run: qtide engine install streamflow")
    return found


def folder() -> Path:
    """The environment's place, among the user's data."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "qtide" / "engines" / f"streamflow-{VERSION}"


def install() -> Path:
    """Create the environment, with the connector; one that is there already is replaced."""
    place = folder()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _create(place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return place


def connector() -> str:
    """The connector for quantum locations, as pip takes it."""
    return next((str(each) for each in PLACES if each.is_dir()), CONNECTOR)


def _create(place: Path) -> None:
    """By uv if it is here, which takes seconds; otherwise by pip."""
    wanted = [REQUIREMENT, connector()]
    _call(sys.executable, "-m", "venv", "--clear", str(place))
    python = str(place / "bin" / "python")
    if find_spec("uv") is not None:
        _call(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *wanted)
    else:
        _call(python, "-m", "pip", "install", "--quiet", *wanted)


def _call(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise QtideError(f"StreamFlow was not installed within {LIMIT:g} s; try again") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise QtideError(f"StreamFlow cannot be installed: {said}; is the package index reachable?")
