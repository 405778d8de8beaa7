"""MPI programs on this machine, and on a real Slurm."""

from pathlib import Path

import pytest

from tests.backends.slurm.stage import Stage as SlurmStage
from tests.mpi.stage import Stage


@pytest.fixture
def local(tmp_path: Path) -> Stage:
    return Stage(tmp_path, None)


@pytest.fixture
def on_slurm(stage: SlurmStage, tmp_path: Path) -> Stage:
    """The queue has to be empty again afterwards."""
    return Stage(tmp_path, stage.conf)
