"""One hostile user against one honest one: what each kind of attack costs the honest user.

The bound is the honest user's own time on the quiet service, measured before each attack. The
attacker runs at the lowest priority of the same host: elsewhere, it would not take our processor.
With `--postgresql`, the service keeps its tasks there instead of in a file.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from attacks import ATTACKS, Target
from claims import Claim, at_most, conclude

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Encoded
from qtide.core.errors import PhaseError, QtideError
from qtide.service.local_service import LocalService
from qtide.service.store import open_database

sys.path.append(str(Path(__file__).parent.parent))
from tests.service.postgres import store_setting

HEAD = 'operators = ["boss"]'
DEVICES = """
[devices.star]
kind = "star"

[devices.other]
kind = "burst"

[devices.drained]
kind = "burst"

[limits]
stored_bytes_per_user = 104857600
"""
QUIET, UNDER_ATTACK, SETTLE = 3.0, 8.0, 1.5
"""Seconds."""
PAUSE = 0.02
OLD = 100_000
"""Occupations of devices by the attacker in earlier times."""
MB = 2**20
CIRCUIT = Encoded(
    "iqm",
    b'{"circuits": [{"name": "c", "instructions": ['
    b'{"name": "prx", "locus": ["QB1"], "args": {"angle": 1.0, "phase": 0.0}},'
    b'{"name": "measure", "locus": ["QB1"], "args": {"key": "m"}}]}]}',
)


def main() -> None:
    """All attacks, or those whose names contain a word that is given, each on a fresh service."""
    words = [each for each in sys.argv[1:] if each != "--postgresql"]
    chosen = [name for name in ATTACKS if not words or any(word in name for word in words)]
    print(f"{'attack':34} {'quiet ms':>14} {'attacked ms':>20} {'MB':>5} {'with all':>8}  answers")
    claims: list[Claim] = []
    for name in chosen:
        with (
            tempfile.TemporaryDirectory(prefix="qtide-hostile-") as folder,
            store_setting(postgresql="--postgresql" in sys.argv) as setting,
            LocalService(Path(folder), DEVICES, f"{HEAD}\n{setting}") as service,
        ):
            fill(service)
            claims += attacked(service, name)
    conclude("hostile", claims)


def fill(service: LocalService) -> None:
    """Let the attacker have used the service a lot."""
    rows = [(f"old {n}", float(n), 0.5, n + 0.5, "other", "mallory", "", n) for n in range(OLD)]
    store = open_database(service.state)
    try:
        store.begin(snapshot=False)
        store.executemany("INSERT INTO occupations VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')", rows)
        store.execute("COMMIT")
    finally:
        store.close()


def attacked(service: LocalService, name: str) -> list[Claim]:
    """What one attack costs the honest user, and the service."""
    service.operator().call("POST", "/v1/devices/drained/drain", form={})
    honest = service.client("honest")
    for _ in range(5):
        small_task(honest)
    quiet, _ = measured(honest, QUIET)
    memory = Memory(service)
    with memory, Attacker(service, name) as attacker:
        time.sleep(SETTLE)
        times, lost = measured(honest, UNDER_ATTACK)
    lost += attacker.lost()
    before, after = 1000 * p95(quiet), 1000 * p95(times)
    beyond = 1000 * max(times, default=60.0) - 1000 * median(quiet)
    print(
        f"{name:34} {1000 * median(quiet):6.1f} {before:7.1f} "
        f"{1000 * median(times or [60.0]):6.1f} {after:6.1f} {beyond:6.0f} "
        f"{memory.service:5.0f} {memory.whole:8.0f}  {attacker.answers()}",
        flush=True,
    )
    return [
        at_most(f"{name}: p95, of the quiet one's", after / before, 3.0),
        at_most(f"{name}: longest beyond the quiet median, ms", beyond, 2000.0),
        at_most(f"{name}: memory of the service, MB", memory.service, 512.0),
        at_most(f"{name}: accepted tasks lost", lost, 0.0),
    ]


def small_task(client: Client) -> None:
    """A circuit of one gate, from its submission to its answer."""
    client.run(CIRCUIT, "star", shots=10)


def measured(client: Client, seconds: float) -> tuple[list[float], int]:
    """How long small tasks take, one after another, and how many failed."""
    times, failed, end = list[float](), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        try:
            small_task(client)
        except ServiceFailed:
            pass  # refused: not accepted, but its time counts
        except (QtideError, PhaseError):
            failed += 1
        times.append(time.perf_counter() - began)
        time.sleep(PAUSE)
    return times, failed


def p95(times: list[float]) -> float:
    """The time that one in twenty exceeds."""
    return quantiles(times, n=20)[18] if len(times) > 1 else max(times, default=60.0)


class Attacker:
    """An attack in a process of its own, from its start to its end."""

    def __init__(self, service: LocalService, name: str) -> None:
        self._service = service
        context = multiprocessing.get_context("fork")
        self._stop = context.Event()
        self._found = context.Queue()
        words = (name, service.port, service.token("mallory"), self._stop, self._found)
        self._process = context.Process(target=_attack, args=words, daemon=True)
        self._accepted: list[str] = []
        self._answers: list[int] = []

    def __enter__(self) -> Attacker:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        try:
            self._accepted, self._answers = self._found.get(timeout=60)
        finally:
            self._process.kill()
            self._process.join()

    def lost(self) -> int:
        """How many of the attacker's own accepted tasks the store does not have."""
        store = open_database(self._service.state)
        try:
            known = {row["id"] for row in store.execute("SELECT id FROM tasks")}
        finally:
            store.close()
        return len(set(self._accepted) - known)

    def answers(self) -> dict[int, int]:
        """How often the service answered what."""
        return {each: self._answers.count(each) for each in sorted(set(self._answers))}


def _attack(name: str, port: int, token: str, stop: Any, found: Any) -> None:
    os.nice(19)
    target = Target(port, token, stop)
    ATTACKS[name](target)
    found.put((target.accepted, target.answers))
    found.close()
    found.join_thread()
    os._exit(0)


class Memory:
    """The most memory that the service takes, by itself and with the processes of its devices."""

    def __init__(self, service: LocalService) -> None:
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.service = 0.0
        self.whole = 0.0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            own = resident(self._service.pid)
            self.service = max(self.service, own)
            self.whole = max(self.whole, own + sum(map(resident, self._service.workers())))


def resident(pid: int) -> float:
    """The memory of a process, in MB."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


if __name__ == "__main__":
    main()
