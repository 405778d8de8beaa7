"""Real kills of real drivers, on the embedded cluster."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qtide.interfaces.python.description import describe
from qtide.runs.folder import RunFolder
from qtide.strategies.strategy import STRATEGIES

PROGRAMS = Path(__file__).with_name("programs_for_tests.py")
QTIDE = [sys.executable, "-m", "qtide"]
MARK = "TEST_FOLDER"
"""A variable by which the agents of a driver are found: they inherit it."""
ROUNDS = 15
EXPECTED = [0] + [n for r in range(ROUNDS) for n in (4 * r * r, (2 * r + 1) ** 2, r)]


def start(folder: Path, strategy: str, rounds: int = ROUNDS) -> subprocess.Popen[str]:
    program = [f"{PROGRAMS}:squares", str(folder), "--rounds", str(rounds)]
    words = ["run", *program, "--strategy", strategy, "--name", "it"]
    where = ["--runs", str(folder / "runs"), "--cluster", "local:2"]
    return subprocess.Popen(
        [*QTIDE, *words, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {MARK: str(folder)},
    )


def resume(folder: Path) -> Any:
    words = ["resume", "it", "--runs", str(folder / "runs"), "--json"]
    done = subprocess.run([*QTIDE, *words], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def await_marks(folder: Path, number: int) -> None:
    limit = time.monotonic() + 60
    marks = folder / "marks"
    while time.monotonic() < limit:
        if marks.exists() and len(marks.read_text().split()) >= number:
            return
        time.sleep(0.01)
    pytest.fail("the run did not get on")


def agents_of(folder: Path) -> list[int]:
    """Agents of the driver that was started for this folder."""
    mark = f"{MARK}={folder}\0".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            agent = b"qtide.backends.clusters.agent" in (place / "cmdline").read_bytes()
            if agent and mark in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:  # it has just ended
            continue
    return found


def none_left(folder: Path) -> bool:
    limit = time.monotonic() + 10
    while agents_of(folder) and time.monotonic() < limit:
        time.sleep(0.05)
    return not agents_of(folder)


def journaled_before(folder: Path) -> set[str]:
    """The numbers of the tasks whose phases the journal has."""
    text = (folder / "runs" / "it" / "journal").read_text()
    keys = {json.loads(line.partition(" ")[2]).get("key") for line in text.splitlines()}
    rounds = [r for r in range(ROUNDS) if str(2 * r + 1) in keys]
    return {str(n) for r in rounds for n in (2 * r, 2 * r + 1)}


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_a_killed_driver_resumes_with_the_same_result(tmp_path: Path, strategy: str) -> None:
    driver = start(tmp_path, strategy)
    await_marks(tmp_path, 5)
    driver.kill()
    driver.communicate(timeout=20)
    assert none_left(tmp_path)
    kept = journaled_before(tmp_path)
    before = Counter((tmp_path / "marks").read_text().split())
    assert resume(tmp_path)["value"] == EXPECTED
    after = Counter((tmp_path / "marks").read_text().split())
    assert kept
    assert all(after[number] == before[number] for number in kept)
    assert none_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_driver_gives_everything_back(tmp_path: Path, number: int) -> None:
    driver = start(tmp_path, "malleable")
    await_marks(tmp_path, 3)
    driver.send_signal(number)
    _, said = driver.communicate(timeout=20)
    assert driver.returncode == 130
    assert "qtide resume" in said
    assert none_left(tmp_path)
    run = RunFolder(tmp_path / "runs" / "it")
    assert run.state == "interrupted"
    ends = {span.end for span in run.intervals() if span.what == "run"}
    assert all(span.end <= max(ends) for span in run.intervals())
    assert resume(tmp_path)["value"] == EXPECTED


def test_a_killed_agent_costs_only_its_task(tmp_path: Path) -> None:
    driver = start(tmp_path, "static")
    await_marks(tmp_path, 3)
    os.kill(agents_of(tmp_path)[0], signal.SIGKILL)
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0
    assert json.dumps(EXPECTED) in out


def test_two_drivers_of_one_run_exclude_each_other(tmp_path: Path) -> None:
    driver = start(tmp_path, "static", rounds=1000)
    await_marks(tmp_path, 1)
    words = [*QTIDE, "resume", "it", "--runs", str(tmp_path / "runs")]
    second = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "another driver is working" in second.stderr
    assert driver.poll() is None
    driver.kill()
    driver.communicate(timeout=20)


def test_a_supervisor_that_is_stopped_does_not_outlive_its_driver(tmp_path: Path) -> None:
    driver = start(tmp_path, "static", rounds=1000)
    await_marks(tmp_path, 3)
    guards = [pid for pid in agents_of(tmp_path) if _parent(pid) == driver.pid]
    assert len(guards) == 2
    for pid in guards:
        os.kill(pid, signal.SIGSTOP)
    driver.kill()
    driver.communicate(timeout=20)
    assert none_left(tmp_path)
    found = describe(RunFolder(tmp_path / "runs" / "it"))
    assert {"held", "run"} <= set(found["lower bounds"])
    assert found["metrics"]["open_ended"] >= 3  # the run itself, and two nodes


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
