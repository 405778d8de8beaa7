"""Sessions on a real Slurm: killed or interrupted, they leave nothing in the queue, and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import joblib
import pytest

import qtide
import qtide.joblib
from tests.backends.slurm.stage import Stage, until
from tests.interfaces.sessions import calls

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
import qtide
from tests.interfaces.sessions import calls

with qtide.session(cluster="slurm", name="mine") as session:
    print(session.submit(calls.marked, sys.argv[1], 1).result(), flush=True)
    print(session.submit(calls.wait_for, sys.argv[1] + "/go").result(), flush=True)
"""


@pytest.fixture
def here(stage: Stage, conf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(stage.folder)
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(stage.folder / "config"))
    monkeypatch.delenv("QTIDE_RUNS", raising=False)
    return stage.folder


def started(folder: Path) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, "script.py", str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_script_that_was_ended_leaves_nothing_and_goes_on(
    stage: Stage, here: Path, number: signal.Signals
) -> None:
    with started(here) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "1\n"
        script.send_signal(number)
        assert script.wait(60) in (-number, 130)
    assert until(lambda: stage.slurm("squeue", "--noheader") == "", 60)
    (here / "go").touch()
    with started(here) as script:
        assert script.communicate(timeout=60)[0] == "1\nTrue\n"
    assert (here / "marks").read_text() == "1 "
    assert qtide.list_runs()[0].state == "done"


def test_a_loop_of_joblib_on_slurm(here: Path) -> None:
    with joblib.parallel_config("qtide", cluster="slurm"):
        squares = joblib.Parallel()(joblib.delayed(calls.square)(n) for n in range(9))
    assert squares == [n * n for n in range(9)]
    assert qtide.list_runs()[-1].metrics.nodes_held > 0
