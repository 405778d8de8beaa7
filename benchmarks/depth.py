"""How the depth of a queue shows: with up to 100,000 tasks of up to 5,000 users that wait.

Each cell is a service of its own, whose store was filled before it starts. While its device works
through tasks of 10 ms, clients submit, look at tasks and list a thousand of them. The bound is the
same service with 1,000 tasks, and limits on what anybody may be held up for.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from claims import Claim, at_least, at_most, conclude

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst, encode
from qtide.service.local_service import LocalService
from qtide.service.records import Draft, insert
from qtide.service.store import connect
from qtide.service.task import Caller, ServiceTask

POLICIES = ("fair", "fifo", "jobs")
DEPTHS = (1_000, 10_000, 100_000)
USERS = (1, 100, 5_000)
BURST_S = 0.01
CLIENTS, SUBMISSIONS, ROUNDS = 16, 480, 5
GETS, LISTS, GAP_S = 100, 3, 4.0


@dataclass(frozen=True)
class Cell:
    """What was measured at one depth."""

    policy: str
    tasks: int
    users: int
    start_s: float
    rate: float
    gap_ms: float
    get_ms: float
    list_s: float
    held_up_ms: float


def main() -> None:
    """Measure every cell, or those of the policies that are named, then conclude."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a service has been started before
    policies = [name for name in POLICIES if name in sys.argv[1:]] or list(POLICIES)
    print(f"{'policy':7} {'tasks':>7} {'users':>6} {'start s':>8} {'submitted/s':>11}", end=" ")
    print(f"{'gap p99 ms':>10} {'GET ms':>7} {'list s':>7} {'held up ms':>10}")
    cells = [
        measured(policy, tasks, min(users, tasks))
        for policy in policies
        for users in USERS
        for tasks in DEPTHS
    ]
    conclude("depth", claims(cells))


def measured(policy: str, tasks: int, users: int) -> Cell:
    """One cell, printed as a row of the table."""
    with tempfile.TemporaryDirectory(prefix="qtide-depth-") as folder:
        devices = f'[devices.dev]\nkind = "burst"\npolicy = "{policy}"\n'
        service = LocalService(Path(folder), devices + "[quotas.user]\ntasks = 1000000\n")
        fill(service, tasks, users)
        began = time.perf_counter()
        with service:
            start_s = time.perf_counter() - began
            cell = Cell(policy, tasks, users, start_s, *asked(service, users))
    print(
        f"{policy:7} {tasks:7} {users:6} {cell.start_s:8.2f} {cell.rate:11.0f} {cell.gap_ms:10.3f}"
        f" {cell.get_ms:7.1f} {cell.list_s:7.3f} {cell.held_up_ms:10.1f}",
        flush=True,
    )
    return cell


def fill(service: LocalService, tasks: int, users: int) -> None:
    """Put tasks into the store, as if they had been submitted."""
    service.state.mkdir()
    store = connect(service.state / "store.sqlite")
    payload, now = encode(Burst(BURST_S)), time.time()
    store.execute("BEGIN")
    for number in range(tasks):
        user = f"user {number % users}"
        task = ServiceTask(
            id=str(uuid.uuid4()),
            caller=Caller(user, f"account {number % users % 50}", number % users),
            device="dev",
            format="burst",
            shots=1,
            seed=0,
            size=1,
            seconds=BURST_S,
            submitted=now - tasks + number,
        )
        insert(task, Draft(payload, ""))(store)
    store.execute("COMMIT")
    store.close()


def asked(service: LocalService, users: int) -> tuple[float, float, float, float, float]:
    """Submissions per second, idle gap, slowest GET, slowest list, and what that held up."""
    chance = random.Random(1)
    clients = [service.client(f"user {n % users}", f"account {n % users % 50}") for n in range(16)]
    time.sleep(GAP_S)
    gap = gap_ms(service)
    client, operator = clients[0], service.operator()
    mine = [each["id"] for each in client.call("GET", "/v1/tasks", {"limit": 1000})["tasks"]]
    gets = [timed(lambda: client.task(chance.choice(mine))) for _ in range(GETS)]
    with watching(clients[1]) as waits:
        words = {"limit": 1000, "everybody": True}
        lists = [timed(lambda: operator.call("GET", "/v1/tasks", words)) for _ in range(LISTS)]
    rate = max(submissions_per_second(clients) for _ in range(ROUNDS))
    return rate, gap, 1000 * max(gets), max(lists), 1000 * max(waits)


def submissions_per_second(clients: list[Client]) -> float:
    """By all clients at once; other work on the computer can only slow a round down."""
    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda n: clients[n % 16].submit(Burst(BURST_S), "dev"), range(SUBMISSIONS)))
    return SUBMISSIONS / (time.perf_counter() - began)


@contextmanager
def watching(client: Client) -> Iterator[list[float]]:
    """How long each request of another user takes meanwhile."""
    stop, waits = threading.Event(), list[float]()

    def watch() -> None:
        while not stop.is_set():
            waits.append(timed(lambda: client.call("GET", "/v1/devices")))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield waits
    finally:
        stop.set()
        watcher.join()


def timed(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def gap_ms(service: LocalService) -> float:
    """How long the device is idle between two tasks, at p99."""
    store = connect(service.state / "store.sqlite")
    words = "SELECT started, used FROM tasks WHERE state = 'done' ORDER BY started"
    rows = store.execute(words).fetchall()
    store.close()
    ends = [row["started"] + row["used"] for row in rows]
    starts = [row["started"] for row in rows][1:]
    gaps: list[float] = [1000 * (start - end) for start, end in zip(starts, ends, strict=False)]
    return quantiles(gaps, n=100)[98]


def claims(cells: list[Cell]) -> list[Claim]:
    """What has to hold in every cell."""
    rates = {(each.policy, each.users, each.tasks): each.rate for each in cells}
    deep = [
        rate / rates[policy, min(users, DEPTHS[0]), DEPTHS[0]]
        for (policy, users, tasks), rate in rates.items()
        if tasks == DEPTHS[-1]
    ]
    return [
        at_least("submissions per second at 100,000, of those at 1,000, worst", min(deep), 0.7),
        at_least("the same, in the median cell", median(deep), 0.7),
        at_most("idle gap p99, ms, worst", max(each.gap_ms for each in cells), 1.0),
        at_most("slowest GET of a task, ms, worst", max(each.get_ms for each in cells), 20.0),
        at_most("a list of 1,000 tasks, s, worst", max(each.list_s for each in cells), 0.3),
        at_most("held up by it, ms, worst", max(each.held_up_ms for each in cells), 20.0),
        at_most("start with 100,000 tasks, s, worst", max(each.start_s for each in cells), 5.0),
    ]


if __name__ == "__main__":
    main()
