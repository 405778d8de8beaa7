"""Where a user's files of qtide lie, by the XDG base directories."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """What programs keep from one start to the next: services' stores, boxes."""
    return _base("XDG_STATE_HOME", "~/.local/state")


def config_folder() -> Path:
    """What the user has written down once for all folders."""
    return _base("XDG_CONFIG_HOME", "~/.config")


def _base(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or otherwise).expanduser() / "qtide"
