"""The shots that a program names reach the device, and the device is busy for that long."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dimod
import pytest

from qtide import quantum
from qtide.backends.devices.annealer import READS
from qtide.backends.devices.profile import Profile, profile
from qtide.service.local_service import LocalService
from qtide.strategies.strategy import strategy_names
from tests.bench import Bench
from tests.strategies.test_strategies import play

PROGRAM = Path(__file__).with_name("shots_program.py")
MODEL = dimod.BinaryQuadraticModel({"a": -1, "b": 1}, {"ab": 1}, 0, "BINARY")
USUAL = Profile("usual", payload_s=3.0, shot_s=0.5, shots=20)


async def reads(*shots: int | None) -> list[int]:
    """How often the device was read out, for each number of shots."""
    return [int((await quantum(MODEL, shots=n)).record.num_occurrences.sum()) for n in shots]


@pytest.mark.parametrize("name", strategy_names())
def test_shots_reach_the_embedded_device(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, profile=USUAL)
    found = bench.run(play(bench.assignment(), name, reads(1, 7, None, READS + 50)))
    assert found == [1, 7, USUAL.shots, READS]
    busy = [span.end - span.start for span in bench.intervals() if span.lane == "qpu/annealer"]
    assert busy == pytest.approx([3.0 + 0.5 * n for n in (1, 7, 20, READS + 50)])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    devices = '[devices.star]\nkind = "star"\nprofile = "annealer"\n'
    with LocalService(tmp_path_factory.mktemp("s"), devices, "anonymous = true") as started:
        yield started


def tasks(service: LocalService, run: str) -> list[tuple[Any, ...]]:
    """Shots, expected and used seconds of the tasks of a run."""
    words = "SELECT shots, seconds, used FROM tasks WHERE name = ? ORDER BY sequence"
    with sqlite3.connect(service.state / "store.sqlite") as store:
        return store.execute(words, (run,)).fetchall()


@pytest.mark.parametrize("name", strategy_names())
def test_shots_reach_a_device_of_a_service(
    tmp_path: Path, service: LocalService, name: str
) -> None:
    words = ["run", str(PROGRAM), "--name", name, "--strategy", name, "--cluster", "local:1"]
    where = ["--runs", str(tmp_path), "--qpu", f"{service.url}/star", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "qtide", *words, *where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    annealer = profile("annealer")
    wanted = [1, 300, 300, annealer.shots]
    assert json.loads(done.stdout)["value"] == wanted  # as many rows
    asked = tasks(service, name)
    assert [shots for shots, _, _ in asked] == [1, 300, annealer.shots]
    expected = [annealer.payload_s + annealer.shot_s * n for n in (1, 2 * 300, annealer.shots)]
    assert [seconds for _, seconds, _ in asked] == pytest.approx(expected)
    assert all(used >= seconds - 1e-3 for _, seconds, used in asked)
