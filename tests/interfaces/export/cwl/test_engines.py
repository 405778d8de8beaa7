"""The applications through cwltool and StreamFlow, here and on Slurm: always the same results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide.runs.folder import RunFolder
from qtide.service.local_service import LocalService
from tests.interfaces.export.cwl.engines import (
    APPLICATIONS,
    LIMIT,
    QTIDE,
    call,
    described,
    engines,
    environment,
)

COMMANDS = f"{Path(__file__).with_name('programs.py')}:commands"
FRAGILE = f"{Path(__file__).with_name('programs.py')}:fragile"
ENGINE = ("--strategy", "workflow", "--engine", "streamflow")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the applications give when qtide runs them."""
    runs = tmp_path_factory.mktemp("plain")
    return described("run", APPLICATIONS, "--qpu", "annealer", "--runs", runs)["value"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    """A service with an annealer."""
    head = 'anonymous = true\noperators = ["anonymous"]'
    folder = tmp_path / "service"
    folder.mkdir()
    with LocalService(folder, '[devices.annealer]\nkind = "annealer"\n', head) as served:
        yield served


def test_commands_are_plain_tools_and_pass_on_their_files(tmp_path: Path) -> None:
    """The tool of a command needs no qtide; in the workflow, its files reach the next command."""
    workflow, results = tmp_path / "workflow", tmp_path / "results"
    call(*QTIDE, "export", "cwl", COMMANDS, "-o", workflow)
    cwltool = (engines() / "cwltool", "--enable-ext", "--outdir", results)
    call(*cwltool, workflow / "made.cwl")
    assert (results / "out.txt").read_text() == "{word}\n"
    call(*cwltool, workflow / "workflow.cwl", workflow / "inputs.yml")
    assert json.loads((results / "result.json").read_text()) == "{word}\n"


def test_cwltool_runs_an_exported_program(tmp_path: Path, expected: Any) -> None:
    workflow, results = tmp_path / "workflow", tmp_path / "results"
    call(*QTIDE, "export", "cwl", APPLICATIONS, "--qpu", "annealer", "-o", workflow)
    cwltool = engines() / "cwltool"
    files = workflow / "workflow.cwl", workflow / "inputs.yml"
    call(cwltool, "--enable-ext", "--quiet", "--outdir", results, *files)
    assert json.loads((results / "result.json").read_text()) == expected
    said = described("show", workflow)
    assert said["state"] == "done"
    assert said["metrics"]["nodes_busy"] > 0


@pytest.mark.further
def test_streamflow_runs_a_program_with_the_devices_of_a_service(
    tmp_path: Path, expected: Any, service: LocalService
) -> None:
    qpu = ("--qpu", f"{service.url}/annealer", "--runs", tmp_path)
    said = described("run", APPLICATIONS, *qpu, *ENGINE, "--name", "flow")
    assert said["value"] == expected
    assert said["state"] == "done"
    assert said["metrics"]["queue_nodes"] > 0
    run = RunFolder(tmp_path / "flow")
    log = (run.path / "engine" / "streamflow.log").read_text()
    assert "QtidePlugin" in log
    assert len(list(service.operator().tasks(everybody=True))) == 2
    call(*QTIDE, "report", "flow", "--runs", tmp_path)


def test_streamflow_runs_a_program_on_slurm(tmp_path: Path, expected: Any, conf: Path) -> None:
    env = environment(SLURM_CONF=str(conf))
    where = ("--cluster", "slurm", "--qpu-by", "gres", "--qpu", "annealer", "--runs", tmp_path)
    said = described("run", APPLICATIONS, *where, *ENGINE, "--name", "flow", env=env)
    assert said["value"] == expected
    lanes = {span.lane for span in RunFolder(tmp_path / "flow").intervals() if span.what == "busy"}
    nodes = {lane for lane in lanes if lane.startswith("node/")}
    assert nodes
    assert nodes <= {"node/c1", "node/c2", "node/c3"}


def test_a_step_that_dies_is_repeated_and_an_engine_that_dies_continues(tmp_path: Path) -> None:
    place, run = tmp_path / "notes", RunFolder(tmp_path / "flow")
    words = ("run", FRAGILE, place, "--qpu", "burst", "--runs", tmp_path, "--name", "flow", *ENGINE)
    driver = subprocess.Popen([*QTIDE, *map(str, words)], env=environment())
    limit = time.monotonic() + LIMIT
    while not (place.exists() and "waiting" in place.read_text()):
        assert driver.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.1)
    (engine,) = _children(driver.pid)
    os.kill(engine, signal.SIGKILL)
    assert driver.wait(LIMIT) == 1
    assert "StreamFlow ended with exit code -9" in (run.end or {})["error"]
    place.with_suffix(".go").touch()
    assert described("resume", "flow", "--runs", tmp_path)["value"] == 5 + 2 + 1 + 4
    assert [place.read_text().split().count(each) for each in ("first", "crash", "last")] == [
        1,
        2,
        1,
    ]


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for each in map(int, found) if b"streamflow" in _words(each)]


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
