"""Environments of vendors' packages, one each: their versions are incompatible.

They are created once, next to the tests' own environment, and found again by their contents.
"""

import fcntl
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ENVIRONMENTS = Path(sys.prefix) / "envs"
IQM_CLIENTS = (
    *(pytest.param(version, marks=pytest.mark.further) for version in ("33.0.5", "35.0.3")),
    "36.0.0",
)[sys.version_info >= (3, 13) :]
"""The oldest, one in between and the newest; the oldest supports Python up to 3.12."""
INSTALL_LIMIT = 1200.0
"""Seconds for half a gigabyte of packages."""


def python_with(*requirements: str, built: bool = False) -> Path:
    """The interpreter of an environment that has these packages; `built` if one has no wheel."""
    words = "\n".join((sys.version, *requirements, *map(_content, requirements)))
    folder = ENVIRONMENTS / sha256(words.encode()).hexdigest()[:16]
    ENVIRONMENTS.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _make(folder, requirements, built=built)
    return folder / "bin" / "python"


def _content(requirement: str) -> str:
    """The entry points of this project: an older environment would lack new ones."""
    file = Path(requirement) / "pyproject.toml"
    return file.read_text() if file.is_file() else ""


def _make(folder: Path, requirements: tuple[str, ...], *, built: bool) -> None:
    python = str(folder / "bin" / "python")
    wheels = () if built else ("--only-binary", ":all:")
    _uv("venv", "--clear", "--python", sys.executable, str(folder))
    _uv("pip", "install", *wheels, "--python", python, *requirements)
    (folder / "complete").write_text("\n".join(requirements))


def _uv(*words: str) -> None:
    command = (sys.executable, "-m", "uv", "--quiet", *words)
    subprocess.run(command, check=True, timeout=INSTALL_LIMIT)
