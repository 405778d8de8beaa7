from __future__ import annotations

import pytest

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.clusters.slurm.slurm_kind import queue_now
from qtide.core.world.real import RealWorld
from tests.backends.slurm.stage import Stage, until


def test_slurm_says_how_long_a_request_would_wait(stage: Stage) -> None:
    slurm, world = Slurm(stage.conf), RealWorld()
    idle = world.run(queue_now(slurm, CompanionOptions(), 2))
    assert idle.wait < 30 and idle.words.startswith("Slurm would grant 2 nodes in")
    job = stage.slurm(
        "sbatch", "--parsable", "--exclusive", "--nodes=3", "--time=30", "--wrap=sleep 600"
    )
    try:
        busy = world.run(queue_now(slurm, CompanionOptions(), 2))
    finally:
        stage.slurm("scancel", job.strip())
        assert until(lambda: not stage.slurm("squeue", "--noheader"))
    assert busy.wait > 600


def test_slurm_says_why_a_request_cannot_start(stage: Stage) -> None:
    with pytest.raises(SlurmFailed, match="does not say when a job would start"):
        RealWorld().run(queue_now(Slurm(stage.conf), CompanionOptions(), 99))
