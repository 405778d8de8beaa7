"""Malleable tasks of a program, by the command, on this machine and Slurm."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qtide.runs.folder import RunFolder
from tests.backends.slurm.stage import Stage

PROGRAM = Path(__file__).with_name("resizing.py")
STEPS = 60
RIGHT = 66 + 12 * STEPS
"""The sum of all rows after so many steps."""
LIMIT = 120


def command(name: str, folder: Path, *words: str) -> list[str]:
    run = [sys.executable, "-m", "qtide", "run", f"{PROGRAM}:{name}", str(folder), *words]
    return [*run, "--runs", str(folder / "runs"), "--json"]


def value(words: list[str]) -> Any:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["value"]


def until(condition: Callable[[], object]) -> None:
    last = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.02)


def alive(process: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def check_sharing(folder: Path, *words: str) -> None:
    (right, sizes), others = value(command("sharing", folder, *words))
    assert right
    assert others == ["two", "one", "one"]
    assert (sizes[:3], sizes[-1]) == ([1, 2, 1], 3)


def test_a_task_grows_and_gives_a_node_back_to_another_task_of_its_job(tmp_path: Path) -> None:
    check_sharing(tmp_path, "--cluster", "local:3", "--strategy", "static")
    (run,) = RunFolder.all(tmp_path / "runs")
    busy = [each for each in run.intervals() if each.what == "busy"]
    assert {each.lane for each in busy if each.label == "stretch"} > {"node/n1"}


def test_it_goes_on_from_what_it_has_saved_when_a_node_is_lost(tmp_path: Path) -> None:
    cluster = ["--cluster", "local:2", "--strategy", "static"]
    total, began = value(command("losing", tmp_path, f"{STEPS}", *cluster))
    assert total == RIGHT
    assert began > 0
    assert {"member", "root"} <= {each.name for each in tmp_path.iterdir()}


def test_a_killed_driver_leaves_nothing_and_resumes(tmp_path: Path) -> None:
    words = command("enduring", tmp_path, "--cluster", "local:2", "--strategy", "malleable")
    driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(list(tmp_path.glob("pid-*"))) == 2)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(LIMIT)
    processes = [int(each.name.removeprefix("pid-")) for each in tmp_path.glob("pid-*")]
    until(lambda: not any(map(alive, processes)))
    (tmp_path / "finish").touch()
    resume = ["resume", "last", "--runs", str(tmp_path / "runs"), "--json"]
    assert value([sys.executable, "-m", "qtide", *resume]) > 0


def test_elastic_gets_nodes_that_pay_for_themselves(tmp_path: Path) -> None:
    cluster = ["--cluster", "local:3", "--strategy", "elastic"]
    assert value(command("scaling", tmp_path, *cluster)) > 1


@pytest.mark.parametrize(("name", "strategy"), [("sharing", "static"), ("scaling", "elastic")])
def test_the_same_on_slurm(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, strategy: str
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(stage.conf))
    cluster = ["--cluster", "slurm", "--strategy", strategy]
    if name == "sharing":
        check_sharing(tmp_path, *cluster)
    else:
        assert value(command("scaling", tmp_path, *cluster)) > 1
