"""Commands on a real Slurm: MPI programs over three nodes, lost nodes and killed drivers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.slurm.stage import Stage
from tests.programs import commands_program
from tests.programs.test_command import living, wait_until

STRATEGIES = ("static", "malleable", "workflow", "split", "elastic")


@pytest.fixture
def slurm(stage: Stage, conf: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The shared box, for whole runs."""
    monkeypatch.setenv("SLURM_CONF", str(conf))
    return stage


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_commands_run_under_every_strategy(slurm: Stage, tmp_path: Path, strategy: str) -> None:
    run = commands_program.chain.run(cluster="slurm", strategy=strategy, runs=tmp_path)
    assert run.value == ["2 lines\n"] * 3 + ["3 of 3\n"]


def test_srun_starts_an_mpi_program_in_the_companion(slurm: Stage, tmp_path: Path) -> None:
    terms = {"cluster": "slurm", "strategy": "static", "launcher": "srun --mpi=pmi2"}
    run = commands_program.chain.run(runs=tmp_path, **terms)
    assert run.value[-1] == "3 of 3\n"


def test_a_node_lost_from_slurm_starts_an_mpi_program_again(slurm: Stage, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    run = commands_program.chain.run(str(marks), cluster="slurm", runs=tmp_path)
    assert run.value[-1] == "3 of 3\n"
    assert len(marks.read_text().splitlines()) == 2


@pytest.mark.parametrize("launcher", ["mpiexec", "srun --mpi=pmi2"])
def test_a_killed_driver_leaves_nothing_on_slurms_nodes(
    slurm: Stage, tmp_path: Path, launcher: str
) -> None:
    mark = tmp_path / "mark"
    words = [sys.executable, "-m", "qtide", "run", f"{commands_program.__file__}:endless"]
    terms = ["--cluster", "slurm", "--strategy", "static", "--launcher", launcher]
    with (tmp_path / "told").open("wb") as told:
        driver = subprocess.Popen(
            [*words, str(mark), *terms], cwd=tmp_path, stdout=told, stderr=told
        )
        wait_until(mark.exists)
        assert len(living(mark)) >= 4
        driver.kill()
        driver.wait()
    wait_until(lambda: not living(mark))
    wait_until(lambda: slurm.slurm("squeue", "--noheader") == "")
