"""Every second that a device was busy is in the books once, whatever was killed when."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.client.client import Client
from qtide.backends.devices.device import Occupation, OccupationLog, Process
from qtide.backends.payloads.payload import Burst, encode
from qtide.service.local_service import LocalService
from qtide.service.queries import usage
from qtide.service.records import SITE
from qtide.service.schema import SCHEMA
from qtide.service.store import connect
from tests.service.serving import BURSTS, Serve, wait_until

DIARY = """
import os, time
from qtide.backends.devices.device import OccupationLog

begin = OccupationLog.__init__

def begin_and_link(self, file):
    begin(self, file)
    name = f"diary-{os.getpid()}-{time.monotonic_ns()}"  # numbers of processes come again
    os.link(file, os.path.join(os.path.dirname(__file__), name))

OccupationLog.__init__ = begin_and_link
"""


@pytest.fixture
def diaries(tmp_path: Path) -> Path:
    keep_diaries(tmp_path)
    return tmp_path


def keep_diaries(folder: Path) -> None:
    """Make a Python whose workers' logs have a second name, and so outlive the workers."""
    (folder / "sitecustomize.py").write_text(DIARY)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)


def busy(folder: Path) -> list[Occupation]:
    """What all workers noted."""
    files = folder.glob("diary-*")
    return [each for file in files for each in asyncio.run(OccupationLog.settled(file))]


def test_owners_and_site_pay_for_every_second_through_kills_of_service_and_worker(
    serving: Serve, diaries: Path
) -> None:
    service = serving(f'{BURSTS}retries = 1000\npython = "{diaries / "python"}"\n')
    clients = [service.client(f"user {n}", f"account {n % 2}", job=n) for n in range(3)]
    stop, done = threading.Event(), list[int]()

    def work(client: Client) -> None:
        while not stop.is_set():
            done.append(client.run(Burst(0.02, 1), "dev"))

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    chance = random.Random(5)
    for number in range(30):
        if number >= 6 and cut_off(service) >= 3:
            break  # on a crowded machine a kill may come while the device is idle
        enough = len(done) + chance.randint(2, 9)
        wait_until(lambda enough=enough: len(done) >= enough)
        time.sleep(chance.uniform(0.0, 0.02))  # in the middle of a burst
        if number % 2:
            service.kill()
            service.start(ready=False)
        else:
            wait_until(service.workers)
            os.kill(service.workers()[0], signal.SIGKILL)
    wait_until(lambda: len(done) > 40)
    stop.set()
    for thread in threads:
        thread.join(60.0)
    operator = service.operator()
    whole = sum(each.seconds for each in busy(diaries))
    for by in (["user"], ["account"], ["job"], ["device"], ["user", "account", "job", "device"]):
        rows = operator.call("GET", "/v1/usage", {"everybody": True, "by": by})
        assert sum(row["qpu_seconds"] for row in rows) == pytest.approx(whole, abs=1e-3)
        assert sum(row["tasks"] for row in rows) == len(done)
    middle = busy(diaries)[len(done) // 2].began
    halves = [{"since": middle}, {"until": middle}]
    parts = [operator.call("GET", "/v1/usage", {"everybody": True} | half) for half in halves]
    assert sum(row["qpu_seconds"] for part in parts for row in part) == pytest.approx(
        whole, abs=1e-3
    )
    assert any(row["user"] == "(site)" for part in parts for row in part)
    assert cut_off(service) >= 3


def cut_off(service: LocalService) -> int:
    store = connect(service.state / "store.sqlite")
    try:
        words = "SELECT count(*) FROM occupations WHERE user = ?"
        return int(store.execute(words, (SITE.user,)).fetchone()[0])
    finally:
        store.close()


def test_a_witness_notes_when_a_worker_was_killed(tmp_path: Path) -> None:
    """Although its parent does not look, and although the worker's whole group is killed."""
    file = tmp_path / "dev"

    async def main() -> tuple[list[Occupation], float, float]:
        with (tmp_path / "log").open("ab") as log:
            worker = await Process.start("burst", {}, None, log, file)
        packed = encode(Burst(60.0))
        words = {"ticket": "a:1", "format": packed.format, "shots": 1, "seed": 0, "seconds": 60.0}
        worker.send(words, packed.data)
        async for header, _ in worker.messages():
            assert header["began"] == "a:1"
            break
        before = time.monotonic()
        os.killpg(worker.pid, signal.SIGKILL)
        found = await worker.occupations()
        after = time.monotonic()
        await worker.end()
        return found, before, after

    (cut,), before, after = asyncio.run(main())
    began, died = (float(line.split()[-1]) for line in file.read_text().splitlines())
    assert (cut.ticket, cut.finished) == ("a:1", False)
    assert cut.seconds == died - began
    assert before <= died <= after


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("began a:1 100.0 5.0\nended 6.5\ndied 9.0\n", [("a:1", 100.0, 1.5, True)]),
        ("began a:1 100.0 5.0\ndied 7.0\n", [("a:1", 100.0, 2.0, False)]),
        ("began a:1 100.0 5.0\nended 6.0\nbegan b:1 1", [("a:1", 100.0, 1.0, True)]),
    ],
)
def test_what_a_log_says(tmp_path: Path, text: str, found: list[tuple[Any, ...]]) -> None:
    (tmp_path / "dev").write_text(text)
    read = asyncio.run(OccupationLog.settled(tmp_path / "dev"))
    assert read == [Occupation(*each) for each in found]


def test_without_a_witness_the_files_time_is_the_last_sign_of_life(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text("began a:1 100.0 5.0\n")
    os.utime(tmp_path / "dev", (0.0, 103.0))
    (cut,) = asyncio.run(OccupationLog.settled(tmp_path / "dev"))
    assert (cut.seconds, cut.finished) == (3.0, False)


def test_a_long_log_loses_its_older_half_only(tmp_path: Path) -> None:
    log = OccupationLog(tmp_path / "dev")
    noted = 2 * log.MOST // 60
    for number in range(noted):
        log.note("began", f"task-{number:030}:1", float(number), 0.0)
        log.note("ended", 1.0)
    del log
    done = subprocess.run(  # in another process, since this one has the lock
        [sys.executable, "-c", READ, tmp_path / "dev"], capture_output=True, text=True, check=True
    )
    read, last = done.stdout.split()
    assert int(read) * 60 >= OccupationLog.MOST // 2
    assert (tmp_path / "dev").stat().st_size <= OccupationLog.MOST + 100
    assert int(last) == noted - 1


READ = """
import asyncio, sys
from pathlib import Path
from qtide.backends.devices.device import OccupationLog
OccupationLog.SETTLING = 0.01
found = asyncio.run(OccupationLog.settled(Path(sys.argv[1])))
assert all(b.began - a.began == 1 for a, b in zip(found, found[1:]))
print(len(found), int(found[-1].began))
"""


def test_a_store_of_the_first_version_keeps_its_usage(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    old = sqlite3.connect(file)
    old.executescript(SCHEMA + "PRAGMA user_version=1;")
    names = "id, user, account, job, digest, device, name, format, shots, seed, size, seconds"
    names += ", priority, submitted, state, attempts, used, ended"
    words = f"INSERT INTO tasks ({names}) VALUES ({', '.join('?' * 18)})"
    row = ("ada", "a", 7, "", "dev", "", "burst", 1, 1, 1, 2.0, 0, 90.0, "done", 1, 2.5, 100.0)
    old.execute(words, ("one", *row))
    old.commit()
    old.close()
    store = connect(file)
    try:
        (used,) = usage(["user", "job"], None, 99.0, 100.5, 200.0)(store)
        assert (used["user"], used["job"], used["tasks"]) == ("ada", 7, 1)
        assert used["qpu_seconds"] == pytest.approx(1.0)
    finally:
        store.close()
