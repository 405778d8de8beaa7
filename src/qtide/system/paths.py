"""Where qtide keeps a user's files, by the XDG base directories."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """State that outlives a process: services' stores, boxes."""
    return _base("XDG_STATE_HOME", "~/.local/state")


def config_folder() -> Path:
    """The user's configuration, for all folders."""
    return _base("XDG_CONFIG_HOME", "~/.config")


def _base(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or otherwise).expanduser() / "qtide"
