"""Quantum payloads from MPI programs: from any rank, and by a component of a world of its own."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService
from tests.backends.slurm.stage import Stage as SlurmStage
from tests.backends.slurm.stage import until
from tests.mpi.stage import Stage

EXAMPLES = Path(__file__).parents[2] / "examples" / "mpi"
DEVICE = """
[devices.dev]
kind = "burst"
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("service"), DEVICE) as served:
        yield served


def offloaded(stage: Stage, service: LocalService) -> str:
    names = {"QTIDE_URL": service.url, "QTIDE_TOKEN": service.token("mia"), "QTIDE_DEVICE": "dev"}
    stage.variables |= names
    return stage.run("offload.py")


def test_a_rank_waits_for_a_qpu_while_the_others_work_on(
    local: Stage, service: LocalService
) -> None:
    assert offloaded(local, service) == "{'of the QPU'} [True, False, True]\n"


def test_the_same_on_slurm(on_slurm: Stage, service: LocalService) -> None:
    assert offloaded(on_slurm, service) == "{'of the QPU'} [True, False, True]\n"


def test_the_quantum_component_of_a_job_is_given_back_while_the_classical_one_goes_on(
    stage: SlurmStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    words = ("sbatch", "--parsable", f"--chdir={tmp_path}", "--output=out")
    job = stage.slurm(*words, str(EXAMPLES / "components.sh"), str(EXAMPLES)).strip()
    try:
        assert until(lambda: not stage.slurm("squeue", "--noheader", "--format=%i"), 90)
    finally:
        stage.slurm("scancel", "--quiet", job)
    told = (tmp_path / "out").read_text()
    rounds = re.findall(r"round \d: energy -\d+\.\d+; (\d+) steps meanwhile", told)
    assert len(rounds) == 3, told
    assert all(int(steps) > 0 for steps in rounds)
    given_back = told.index("the QPU was given back\n")
    assert given_back < told.index("5 steps after the QPU was given back")
    assert until(lambda: stage.idle() == 3)
    assert list(tmp_path.glob("components-*")) == []
