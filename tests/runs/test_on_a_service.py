"""Runs whose QPU is a device of the vQPU service."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide.service.local_service import LocalService
from qtide.service.store import connect
from qtide.strategies.strategy import STRATEGIES
from tests.service.serving import wait_until

PROGRAMS = Path(__file__).with_name("programs_for_tests.py")
QTIDE = [sys.executable, "-m", "qtide"]
DEVICES = '[devices.dev]\nkind = "burst"\n[devices.annealer]\nkind = "annealer"\n'
ROUNDS = 5
EXPECTED = [0] + [n for r in range(ROUNDS) for n in (4 * r * r, (2 * r + 1) ** 2, r)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """One service for all tests: each run has its own name."""
    head = 'anonymous = true\noperators = ["anonymous"]'
    with LocalService(tmp_path_factory.mktemp("service"), DEVICES, head) as served:
        yield served


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A run's name that no other test uses."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


def words(folder: Path, service: LocalService, name: str, *more: str) -> list[str]:
    program = ["run", f"{PROGRAMS}:squares", str(folder), "--rounds", str(ROUNDS)]
    where = ["--runs", str(folder / "runs"), "--name", name, "--cluster", "local:2"]
    return [*QTIDE, *program, *where, "--qpu", f"{service.url}/dev", "--json", *more]


def said(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_every_strategy_gives_the_same_result(
    tmp_path: Path, service: LocalService, name: str, strategy: str
) -> None:
    result = said(run(words(tmp_path, service, name, "--strategy", strategy)))
    assert result["value"] == EXPECTED
    used = [seconds for _, seconds in tasks(service, name)]
    assert result["metrics"]["qpu_busy"] == pytest.approx(sum(used), abs=1e-3)
    assert all(seconds >= 0.05 - 1e-3 for seconds in used)
    assert states(service, name) == ["done"] * ROUNDS


def test_a_run_that_is_killed_and_resumed_submits_no_task_twice(
    tmp_path: Path, service: LocalService, name: str
) -> None:
    driver = subprocess.Popen(
        words(tmp_path, service, name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(states(service, name)) >= 3)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    command = [*QTIDE, "resume", name, "--runs", str(tmp_path / "runs"), "--json"]
    assert said(run(command))["value"] == EXPECTED
    assert states(service, name) == ["done"] * ROUNDS


def test_a_run_continues_when_the_service_is_killed(
    tmp_path: Path, service: LocalService, name: str
) -> None:
    driver = subprocess.Popen(
        words(tmp_path, service, name), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(states(service, name)) >= 2)
    service.kill()
    service.start()
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert json.loads(out)["value"] == EXPECTED
    assert states(service, name) == ["done"] * ROUNDS


def test_a_missing_device_is_reported_before_the_run_begins(
    tmp_path: Path, service: LocalService, name: str
) -> None:
    for url, sentence in (
        (f"{service.url}/nowhere", "has no device 'nowhere'; it has: dev, annealer"),
        ("http://127.0.0.1:9/dev", "does not answer"),
    ):
        done = run([*words(tmp_path, service, name), "--name", "other", "--qpu", url])
        assert done.returncode in (1, 2)
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def states(service: LocalService, name: str) -> list[str]:
    """Of the tasks of a run."""
    return [state for state, _ in tasks(service, name)]


def tasks(service: LocalService, name: str) -> list[tuple[str, float]]:
    """The state of each task of a run, and the seconds that it had the device."""
    store = connect(service.state / "store.sqlite")
    try:
        found = store.execute("SELECT state, used FROM tasks WHERE name = ?", (name,))
        return [(row["state"], row["used"]) for row in found]
    finally:
        store.close()
