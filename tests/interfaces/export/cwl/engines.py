"""StreamFlow and cwltool, in an environment of their own, as the tests start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from qtide.interfaces.export.streamflow import NAMED, REQUIREMENT, connector
from tests.service.apis.environments import python_with

QTIDE = [sys.executable, "-m", "qtide"]
APPLICATIONS = f"{Path(__file__).with_name('applications.py')}:both"
LIMIT = 300.0
"""Seconds after which a test has hung; no test comes near."""


def engines() -> Path:
    """The folder of their commands; the connector there is always the present one."""
    source = f"--editable={connector()}"
    return python_with(REQUIREMENT, "cwltool", source, built=True).parent


def environment(**more: str) -> dict[str, str]:
    """The environment in which qtide finds StreamFlow."""
    return os.environ | {NAMED: str(engines() / "streamflow")} | more


def call(*words: str | Path, env: dict[str, str] | None = None) -> str:
    """What a command prints; its complaints if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env=env or environment(),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def described(*words: str | Path, env: dict[str, str] | None = None) -> Any:
    """What a command of qtide says in JSON."""
    return json.loads(call(*QTIDE, *words, "--json", env=env))
