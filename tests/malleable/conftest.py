"""MPI programs on this machine, and on a real Slurm."""

from pathlib import Path

import pytest

from tests.malleable.stage import Stage
from tests.slurm.stage import Stage as SlurmStage


@pytest.fixture
def local(tmp_path: Path) -> Stage:
    return Stage(tmp_path, None)


@pytest.fixture
def on_slurm(stage: SlurmStage, tmp_path: Path) -> Stage:
    """The queue has to be empty again afterwards."""
    return Stage(tmp_path, stage.conf)
