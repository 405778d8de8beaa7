"""MPI programs on this machine, and on a real Slurm."""

import shutil
from pathlib import Path

import pytest

from tests.backends.slurm.fixtures import install
from tests.backends.slurm.stage import Stage as SlurmStage
from tests.mpi.stage import Stage


@pytest.fixture
def local(tmp_path: Path) -> Stage:
    return Stage(tmp_path, None)


@pytest.fixture
def on_slurm(stage: SlurmStage, tmp_path: Path) -> Stage:
    """The queue has to be empty again afterwards."""
    return Stage(tmp_path, stage.conf)


@pytest.fixture(scope="session")
def compilers() -> None:
    """What builds libqtide, and what Python programs load of it."""
    if not all(map(shutil.which, ("gcc", "g++", "ld", "ar", "pkg-config"))):
        install("there is no C compiler", ["gcc", "g++", "binutils", "pkg-config"])
