"""A real Slurm cluster for the tests; its packages are installed if that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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


def install(missing: str, packages: list[str]) -> None:
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        pytest.fail(missing, pytrace=False)
    wait = ("-o", "DPkg::Lock::Timeout=120")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
        done = subprocess.run(
            [apt, "-qq", *wait, *words], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no word"])[-1]
            pytest.fail(f"{missing}; apt-get {words[0]} failed: {last}", pytrace=False)
