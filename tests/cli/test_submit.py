"""Runs that are left to a driver of their own."""

import os
import time
from pathlib import Path

import pytest

from tests.cli.test_commands import PROGRAMS, as_json, qtide


def await_state(folder: Path, state: str) -> bool:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if as_json(folder, "show", "it")["state"] == state:
            return True
        time.sleep(0.1)
    return False


def submit(folder: Path, rounds: int) -> int:
    words = ("submit", f"{PROGRAMS}:squares", folder, "--rounds", rounds, "--name", "it")
    described = as_json(folder, *words, "--cluster", "local:2")
    return int(described["driver"].removeprefix("process "))


def test_a_submitted_run_goes_on_by_itself(tmp_path: Path) -> None:
    submit(tmp_path, rounds=2)
    assert await_state(tmp_path, "done")
    assert as_json(tmp_path, "show", "it")["end"]["value"] == [0, 0, 1, 0, 4, 9, 1]


def test_a_run_is_cancelled_by_its_folder_and_resumed(tmp_path: Path) -> None:
    pid = submit(tmp_path, rounds=1000)
    shown = as_json(tmp_path, "show", "it")
    assert (shown["state"], shown["driver"]["pid"]) == ("running", pid)
    assert as_json(tmp_path, "cancel", "it")["state"] == "cancelled"
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.1)
    described = tmp_path / "qtide-runs" / "it" / "run.json"
    described.write_text(described.read_text().replace('"1000"', '"1"'))
    assert as_json(tmp_path, "resume", "it")["value"] == [0, 0, 1, 0]


def test_a_run_that_does_not_run_cannot_be_cancelled(tmp_path: Path) -> None:
    as_json(tmp_path, "run", "synthetic", "--name", "it", "--cluster", "simulated")
    refused = qtide(tmp_path, "cancel", "it")
    assert refused.returncode == 2
    assert "it does not run; it is done" in refused.stderr


def test_an_unknown_driver_is_refused(tmp_path: Path) -> None:
    refused = qtide(tmp_path, "submit", "synthetic", "--driver", "butler")
    assert refused.returncode == 2
    assert "--driver is background or slurm" in refused.stderr
