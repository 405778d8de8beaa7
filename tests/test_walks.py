"""How many source files one phase and one service task pass, over all their processes.

A reader who follows either has to open so many files; the limits keep that from growing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService

PHASE_FILES = 53
SERVICE_FILES = 37
TRACER = Path(__file__).parent / "walks"
PROGRAM = """
from qtide import program, task


def double(n: int) -> int:
    return 2 * n


@program
async def one(n: int = 1) -> int:
    return await task(double, n)
"""
CLIENT = """
import sys

import dimod

from qtide.backends.client.client import Client

model = dimod.BinaryQuadraticModel({"a": 1.0}, {}, "BINARY")
print(Client(sys.argv[1], sys.argv[2]).run(model, "walk").first.energy)
"""


def traced(folder: Path) -> dict[str, str]:
    """The environment of a process that is traced into a folder, with those that it starts."""
    folder.mkdir()
    return os.environ | {"QTIDE_TRACE": str(folder), "PYTHONPATH": str(TRACER)}


def walk(folder: Path, skipped: dict[str, int] | None = None) -> list[str]:
    """The files that were passed, in order, process by process; without what came before."""
    hops: list[str] = []
    for file in folder.iterdir():
        hops += file.read_text().splitlines()[(skipped or {}).get(file.name, 0) :]
    return hops


def energy(command: list[str]) -> float:
    """What a client prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout)


def shown(files: set[str]) -> str:
    return f"{len(files)} files: {', '.join(sorted(files))}"


def test_a_classical_phase_passes_few_files(tmp_path: Path) -> None:
    """From the command to the printed table: driver, supervisor and agent."""
    (tmp_path / "one.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "qtide", "run", "one.py", "3"]
    done = subprocess.run(
        [*command, "--cluster", "local"],
        cwd=tmp_path,
        env=traced(tmp_path / "trace"),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "result: 6" in done.stdout
    files = set(walk(tmp_path / "trace"))
    assert {"strategies/elastic.py", "backends/clusters/agent.py", "interfaces/cli/run.py"} <= files
    assert not files & {"backends/devices/device.py", "backends/leases/qpu.py"}, "it has no payload"
    assert len(files) <= PHASE_FILES, shown(files)


def test_a_service_task_passes_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the client's call to its answer: client, service and worker, once all have started."""
    folder = tmp_path / "trace"
    for name, value in traced(folder).items():
        monkeypatch.setenv(name, value)
    with LocalService(tmp_path, '[devices.walk]\nkind = "annealer"\n') as service:
        command = [sys.executable, "-c", CLIENT, service.url, service.token()]
        assert energy(command) == 0.0  # the first task starts what checks payloads
        started = {file.name: len(file.read_text().splitlines()) for file in folder.iterdir()}
        assert energy(command) == 0.0
        files = set(walk(folder, started))
    assert {"service/service.py", "backends/devices/worker.py"} <= files
    assert len(files) <= SERVICE_FILES, shown(files)
