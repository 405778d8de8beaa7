"""Runs with a driver of their own."""

import json
import os
import time
from pathlib import Path

import pytest

from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from tests.interfaces.cli.inside import printed, refused
from tests.interfaces.cli.test_commands import PROGRAMS, as_json


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


def test_a_submitted_run_continues_by_itself(tmp_path: Path) -> None:
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


def test_a_run_that_does_not_run_cannot_be_cancelled(here: Path) -> None:
    printed("run", "synthetic", "--name", "it", "--cluster", "simulated")
    assert "it is not running; it is done" in refused("cancel", "it")


@pytest.mark.parametrize("driver", ["butler", "local"])
def test_an_unknown_driver_is_refused(here: Path, driver: str) -> None:
    said = refused("submit", "synthetic", "--driver", driver)
    assert said == f"--driver is background or slurm, not {driver!r}"
    assert not (here / "qtide-runs").exists()


@pytest.fixture
def commands(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for fake Slurm commands with scripted output."""
    folder = here / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return folder


def command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_driver_may_be_a_job_of_slurm(here: Path, commands: Path) -> None:
    command(commands, "sbatch", f'echo "$@" > {here}/words; cat > {here}/script; echo "42;box"')
    words = ("submit", "synthetic", "--name", "it", "--driver", "slurm")
    assert "it is driven by job 42" in printed(*words, "--driver-option=--time=60")
    given = (here / "words").read_text()
    assert "--job-name=qtide-driver-it" in given and "--time=60" in given
    log = here / "qtide-runs" / "it" / "driver.log"
    assert f"--output={log}" in given
    assert "resume it --runs" in (here / "script").read_text()


def test_a_driver_that_slurm_refuses_is_reported_in_slurms_words(
    here: Path, commands: Path
) -> None:
    command(commands, "sbatch", "echo 'sbatch: error: no such partition' >&2; exit 1")
    said = refused("submit", "synthetic", "--name", "it", "--driver", "slurm", code=1)
    assert said == "sbatch refused the driver of it: sbatch: error: no such partition"


def test_a_driver_that_is_gone_is_shown_with_slurms_state(here: Path, commands: Path) -> None:
    fields = ("7", "7", "NODE_FAIL", "0", "1", "N/A", "N/A", "None", "c1", "N/A", "N/A", "x", "")
    mark = "mark=$(echo \"$*\" | sed 's/.*--format=\\([0-9a-f]*\\)%A.*/\\1/')"
    command(commands, "squeue", f'{mark}; printf "%s" {" ".join(f"${{mark}}{f}" for f in fields)}')
    run = RunFolder.create(here / "qtide-runs", "it", Spec("synthetic"))
    run.journal.touch()
    driver = {"host": "c1", "pid": 3, "cluster": "slurm", "job": "7"}
    (run.path / "driver.json").write_text(json.dumps(driver))
    shown = json.loads(printed("show", "it", "--json"))
    assert "process 3 on c1, job 7" in shown["interruption"]
    assert "(Slurm's state of its job: NODE_FAIL)" in shown["interruption"]
    assert "slurm" not in shown and "local" not in shown


def test_what_dead_drivers_left_is_cancelled(here: Path, commands: Path) -> None:
    command(commands, "squeue", "exit 0")
    assert "nothing was left" in printed("reap")
    assert json.loads(printed("reap", "--json")) == {"cancelled": []}
