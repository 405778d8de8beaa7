"""What a driver that is killed has in Slurm's queue leaves it, without a new driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.mark import reap
from tests.backends.slurm.stage import Stage, until

DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.backends.slurm.stage import Stage
from tests.backends.slurm.test_leases import BY_GRES, admitted

async def scene(cluster):
    qpu = admitted(cluster)
    wishes = [
        cluster.request(stage.job("plain"), 3),
        cluster.request(stage.job("both"), 1, co_allocate=qpu),
        qpu.lease(stage.job("lease")),
    ]
    await cluster.world.all_of(wishes)

stage = Stage(Path(sys.argv[1]), Path(sys.argv[2]))
stage.play(scene, BY_GRES, limit=600)
"""
WAITING = 4
"""A plain job, one of two components, and a lease."""


@pytest.fixture
def full(stage: Stage) -> Iterator[Stage]:
    """A box on which nothing is free."""
    others = (("-N3", "--exclusive"), ("-p", "quantum", "--gres=qpu:2", "-n1"))
    for words in others:
        stage.slurm("salloc", *words, "--no-shell", "-J", "other", "-t10")
    yield stage
    stage.slurm("scancel", "--name=other")
    assert until(lambda: stage.slurm("squeue", "-h") == "")


@pytest.fixture
def driver(full: Stage) -> Iterator[subprocess.Popen[bytes]]:
    """A driver whose requests wait."""
    words = [sys.executable, "-c", DRIVER, str(full.conf), str(full.folder)]
    process = subprocess.Popen(words)
    try:
        assert until(lambda: len(waiting(full)) == WAITING)
        yield process
    finally:
        process.kill()
        process.wait()


def waiting(stage: Stage) -> list[str]:
    return stage.slurm("squeue", "-h", "-t", "PD", "-o", "%i").split()


def wardens(driver: int) -> list[int]:
    """The wardens that wait, not those that are just starting."""
    found = []
    for thread in Path(f"/proc/{driver}/task").iterdir():
        children: list[str] = []
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            children = (thread / "children").read_text().split()
        for word in children:
            with suppress(FileNotFoundError, ProcessLookupError):  # so has the child
                if _is_warden(int(word)):
                    found.append(int(word))
    return found


def _is_warden(pid: int) -> bool:
    return "warden" in Path(f"/proc/{pid}/cmdline").read_text() and _sleeps(pid)


def _sleeps(pid: int) -> bool:
    """Whether it has loaded all it needs, and does nothing."""
    loaded = "_ctypes" in Path(f"/proc/{pid}/maps").read_text()
    return loaded and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_requests_of_every_kind_leave_the_queue(
    full: Stage, driver: subprocess.Popen[bytes]
) -> None:
    driver.kill()
    driver.wait()
    assert until(lambda: not waiting(full))


def test_even_if_the_warden_is_stopped_at_that_moment(
    full: Stage, driver: subprocess.Popen[bytes]
) -> None:
    assert until(lambda: len(wardens(driver.pid)) == 1)
    os.kill(wardens(driver.pid)[0], signal.SIGSTOP)
    driver.kill()
    driver.wait()
    assert until(lambda: not waiting(full))


def test_a_warden_that_is_killed_is_replaced(full: Stage, driver: subprocess.Popen[bytes]) -> None:
    assert until(lambda: len(wardens(driver.pid)) == 1)
    first = wardens(driver.pid)
    os.kill(first[0], signal.SIGKILL)
    assert until(lambda: len(wardens(driver.pid)) == 1 and wardens(driver.pid) != first)
    driver.kill()
    driver.wait()
    assert until(lambda: not waiting(full))


def test_if_both_are_killed_the_reaper_does_it(
    full: Stage, driver: subprocess.Popen[bytes]
) -> None:
    assert until(lambda: len(wardens(driver.pid)) == 1)
    driver.send_signal(signal.SIGSTOP)  # so that it cannot replace the warden
    os.kill(wardens(driver.pid)[0], signal.SIGKILL)
    driver.kill()
    driver.wait()
    assert len(waiting(full)) == WAITING
    full.world.run(reap(Slurm(full.conf)))
    assert until(lambda: not waiting(full))
