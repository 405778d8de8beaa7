"""A real Slurm cluster for the tests; its packages are installed if that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide import box
from qtide.box.release import Release
from qtide.core.errors import QtideError
from tests.backends.slurm.stage import Stage

PACKAGES = [
    *("munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    *("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server"),
]


NEWEST = "forky"
"""The newest release of Slurm that the tests use."""


def unavailable() -> str:
    """Why the newest release cannot be fetched; empty if it is here."""
    try:
        Release.named(NEWEST)
    except QtideError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def packages() -> None:
    try:
        Release().require(auth="munge", accounting=True)
    except box.PackagesMissing as missing:
        install(str(missing), PACKAGES)


@pytest.fixture
def empty(packages: None) -> Iterator[Path]:
    """A short path for a test's own box; what is left there afterwards is taken down."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    yield folder
    remove(folder)


@pytest.fixture(scope="session")
def conf(packages: None) -> Iterator[Path]:
    """The configuration of a box that the tests share."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        yield Path(box.env(box.up(folder, nodes=3, qpus=2).folder)["SLURM_CONF"])
    finally:
        remove(folder)


@pytest.fixture
def stage(conf: Path, tmp_path: Path) -> Iterator[Stage]:
    """A world on the shared box; the queue has to be empty again afterwards."""
    stage = Stage(conf, tmp_path)
    yield stage
    assert stage.slurm("squeue", "--noheader", "--format=%i %j %T") == ""


def remove(folder: Path) -> None:
    """Take down the box in a folder, if there is one, and remove it."""
    if (folder / "box.json").exists():
        box.down(folder)
    shutil.rmtree(folder, ignore_errors=True)


APT_LIMIT = 300.0
"""Seconds to wait until nobody else installs packages; its own lock knows only some of them."""


def install(missing: str, packages: list[str]) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.fail(missing, pytrace=False)
    for words in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
        done = apt(*words)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no word"])[-1]
            pytest.fail(f"{missing}; apt-get {words[0]} failed: {last}", pytrace=False)


def apt(*words: str) -> subprocess.CompletedProcess[str]:
    """Call apt-get once nobody else does: test processes begin at the same time."""
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    last = time.monotonic() + APT_LIMIT
    while True:
        done = subprocess.run(
            ["apt-get", "-qq", *words], env=env, capture_output=True, text=True, check=False
        )
        if not done.returncode or "lock" not in done.stderr or time.monotonic() > last:
            return done
        time.sleep(1.0)
