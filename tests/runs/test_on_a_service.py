"""Runs whose QPU is a device of the vQPU service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide.service.store import connect
from qtide.strategies import STRATEGIES
from qtide.testing.service import LocalService
from tests.service.serving import wait_until

PROGRAMS = Path(__file__).with_name("programs_for_tests.py")
QTIDE = [sys.executable, "-m", "qtide.cli.main"]
DEVICES = '[devices.dev]\nkind = "burst"\n[devices.annealer]\nkind = "annealer"\n'
ROUNDS = 5
EXPECTED = [0] + [n for r in range(ROUNDS) for n in (4 * r * r, (2 * r + 1) ** 2, r)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    folder = tmp_path / "service"
    folder.mkdir()
    with LocalService(folder, DEVICES, 'anonymous = true\noperators = ["anonymous"]') as served:
        yield served


def words(folder: Path, service: LocalService, *more: str) -> list[str]:
    program = ["run", f"{PROGRAMS}:squares", str(folder), "--rounds", str(ROUNDS)]
    where = ["--runs", str(folder / "runs"), "--name", "it", "--cluster", "local:2"]
    return [*QTIDE, *program, *where, "--qpu", f"{service.url}/dev", "--json", *more]


def said(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_gives_the_same_result(
    tmp_path: Path, service: LocalService, strategy: str
) -> None:
    result = said(run(words(tmp_path, service, "--strategy", strategy)))
    assert result["value"] == EXPECTED
    assert result["metrics"]["qpu_busy"] == pytest.approx(ROUNDS * 0.05, abs=0.2)
    assert [row["state"] for row in rows(service)] == ["done"] * ROUNDS


def test_a_run_that_is_killed_and_resumed_hands_in_no_task_twice(
    tmp_path: Path, service: LocalService
) -> None:
    driver = subprocess.Popen(
        words(tmp_path, service), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(rows(service)) >= 3)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    command = [*QTIDE, "resume", "it", "--runs", str(tmp_path / "runs"), "--json"]
    assert said(run(command))["value"] == EXPECTED
    assert [row["state"] for row in rows(service)] == ["done"] * ROUNDS


def test_a_run_goes_on_when_the_service_is_killed_under_it(
    tmp_path: Path, service: LocalService
) -> None:
    driver = subprocess.Popen(
        words(tmp_path, service), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(rows(service)) >= 2)
    service.kill()
    service.start()
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert json.loads(out)["value"] == EXPECTED
    assert [row["state"] for row in rows(service)] == ["done"] * ROUNDS


def test_what_the_service_has_not_is_said_before_the_run_begins(
    tmp_path: Path, service: LocalService
) -> None:
    for url, sentence in (
        (f"{service.url}/nowhere", "has no device 'nowhere'; it has: dev, annealer"),
        ("http://127.0.0.1:9/dev", "does not answer"),
    ):
        done = run([*words(tmp_path, service), "--name", "other", "--qpu", url])
        assert done.returncode in (1, 2)
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def rows(service: LocalService) -> list[dict[str, Any]]:
    store = connect(service.state / "store.sqlite")
    try:
        return [dict(row) for row in store.execute("SELECT state, attempts FROM tasks")]
    finally:
        store.close()
