"""Two drivers on one Slurm: neither waits forever for what the other one holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.stage import Stage

LIMIT = 90.0


def driver(stage: Stage, strategy: str, admission: str) -> subprocess.Popen[bytes]:
    words = ("synthetic", "published", "--quantum-s", "20", "--time-scale", "0.005")
    site = ("--cluster", "slurm", "--qpu-by", admission, "--strategy", strategy)
    return subprocess.Popen(
        [sys.executable, "-m", "qtide.cli.main", "run", *words, *site, "--name", strategy],
        env=os.environ | {"SLURM_CONF": str(stage.conf)},
        stderr=(stage.folder / f"{strategy}.log").open("wb"),
        cwd=stage.folder,
    )


@pytest.mark.parametrize(("other", "admission"), [("split", "gres"), ("static", "licence")])
def test_elastic_gets_along_with_a_driver_that_wants_all_at_once(
    stage: Stage, other: str, admission: str
) -> None:
    """The other one's heterogeneous job waits for the very nodes that elastic may keep idle."""
    drivers = [driver(stage, name, admission) for name in ("elastic", other)]
    try:
        assert [each.wait(LIMIT) for each in drivers] == [0, 0], _logs(stage.folder)
    finally:
        for each in drivers:
            each.kill()
            each.wait()


def _logs(folder: Path) -> str:
    return "\n".join(each.read_text() for each in folder.glob("*.log"))
