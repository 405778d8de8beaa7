"""CPython's own tests of executors, whether the installed Python has them or not."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.slurm.fixtures import apt

VERSION = f"3.{sys.version_info.minor}"
PACKAGE = f"libpython{VERSION}-testsuite"
"""Debian's package of CPython's tests."""
LIMIT = 300.0
"""Seconds for its download."""


def executor_tests(folder: Path) -> Path:
    """Return the source of `test.test_concurrent_futures`; `folder` keeps what is downloaded."""
    found = importlib.util.find_spec("test.test_concurrent_futures")
    if found is not None and found.origin is not None:
        return Path(found.origin)
    source = folder / "usr" / "lib" / f"python{VERSION}" / "test" / "test_concurrent_futures.py"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not source.is_file():
            _download(folder)
    return source


def _download(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        pytest.fail(f"this Python has no test.test_concurrent_futures; install {PACKAGE}")
    if not _call(folder, "apt-get", "download", PACKAGE):  # a new machine has no lists of packages
        apt("update")
        _call(folder, "apt-get", "download", PACKAGE, needed=True)
    for archive in folder.glob(f"{PACKAGE}_*.deb"):
        _call(folder, "dpkg-deb", "-x", archive.name, ".", needed=True)


def _call(folder: Path, *words: str, needed: bool = False) -> bool:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode and needed:
        pytest.fail(f"{' '.join(words)} failed: {done.stderr.strip()[-500:]}", pytrace=False)
    return not done.returncode
