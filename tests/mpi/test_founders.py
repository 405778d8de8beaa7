"""Nodes of a program that srun started: which can be given back, and what if Slurm refuses."""

from pathlib import Path

import pytest

from qtide.core.ledger import Ledger
from qtide.mpi.control import ControlServer
from qtide.mpi.founders import FounderNodes, SlurmStep
from tests.backends.slurm.stage import until

ENVIRONMENT = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "c[1-3]",
}
SCONTROL = """#!/bin/sh
echo "$@" >> {folder}/calls
[ "$1" = show ] && exec printf 'c1\\nc2\\nc3\\n'
[ -e {folder}/willing ] || {{ echo "Job is held by its site" >&2; exit 1; }}
"""


@pytest.fixture(autouse=True)
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a step in a job of three nodes, and a Slurm that is willing or not."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    script = tmp_path / "scontrol"
    script.write_text(SCONTROL.format(folder=tmp_path))
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SLURM_JOB_NUM_NODES", "4"), ("SLURM_STEP_NUM_TASKS", "6"), ("MPI_LOCALRANKID", "0")],
)
def test_a_step_beside_others_or_of_mpiexec_keeps_its_nodes(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SlurmStep.of_this_process(3) is not None
    monkeypatch.setenv(name, value)
    assert SlurmStep.of_this_process(3) is None


def test_ranks_that_have_left_take_their_nodes_out_of_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = SlurmStep.of_this_process(3)
    assert step is not None
    assert not step.give_back([2])
    assert "before the program ends: Job is held by its site" in capsys.readouterr().err
    (tmp_path / "willing").touch()
    assert step.give_back([1])
    assert step.give_back([2])
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-2:] == ["update JobId=7 NodeList=c1,c3", "update JobId=7 NodeList=c1"]


def test_a_node_counts_as_held_until_slurm_has_it(tmp_path: Path) -> None:
    ledger = Ledger("job", lambda: 0.0)
    held = {each: ledger.span("held", f"node/c{each + 1}") for each in (1, 2)}
    server = ControlServer("127.0.0.1")
    nodes = FounderNodes(server, held, SlurmStep.of_this_process(3))
    nodes.release([2])  # its process is gone, but Slurm refuses
    assert until(lambda: "NodeList=c1,c2" in (tmp_path / "calls").read_text(), 10)
    (tmp_path / "willing").touch()
    nodes.release([1])
    assert until(lambda: held[1]._ledger is None, 10)
    assert held[2]._ledger is not None
    nodes.close()
    server.close()
    assert held[2]._ledger is None
