"""MPI tasks of a qtide program, by the command, under every strategy, on this machine and Slurm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.slurm.stage import Stage

PROGRAM = Path(__file__).with_name("spmd.py")
EXPECTED = [10, [30, 30], [2, 2], "rank 1 does not like this"]


def ran(folder: Path, *words: str) -> object:
    """The result of the program."""
    command = [
        sys.executable,
        "-m",
        "qtide",
        "run",
        str(PROGRAM),
        str(folder / "mark"),
    ]
    done = subprocess.run(
        [*command, "--runs", str(folder / "runs"), "--json", *words],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["value"]


@pytest.mark.parametrize("strategy", ["static", "malleable", "workflow", "split", "elastic"])
def test_the_ranks_of_a_task_have_a_communicator(strategy: str, tmp_path: Path) -> None:
    assert ran(tmp_path, "--strategy", strategy, "--cluster", "local:3") == EXPECTED


def test_the_same_on_slurm(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(stage.conf))
    assert ran(tmp_path, "--cluster", "slurm") == EXPECTED
