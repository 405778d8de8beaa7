"""The vQPU service: what it costs a device and its users, and what a hundred kills do to it.

Peers and bounds in the same run: HyperQueue as dispatcher of the same bursts, the closed loop's
formula, and the burst itself. Durable means: on disk (fsync) before the client gets an answer.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from claims import Claim, at_least, at_most, conclude

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from qtide.service.store import connect

sys.path.append(str(Path(__file__).parent.parent))
from tests.service.apis.environments import python_with

DEVICE = '[devices.dev]\nkind = "burst"\npolicy = "fifo"\nretries = 1000\n'
STAR = '[devices.star]\nkind = "star"\nprofile = "annealer"\n'
GAPS, GAP_BURST = 400, 0.02
CLIENTS, EACH = 64, 60
BURST, CYCLES, JOBS, RATIOS = 0.3, 6, (1, 2, 4, 8, 12, 16), (0.5, 2.5, 8.5)
KILLS, KILL_CLIENTS = 100, 8
SHOTS, IQM_RUNS = 175, 30  # 15 ms and 0.2 ms per shot: 50 ms

IQM_PROGRAM = """
import json, sys, time
from iqm.qiskit_iqm import IQMProvider
from qiskit import QuantumCircuit, transpile
backend = IQMProvider(sys.argv[1], quantum_computer="star").get_backend()
bell = QuantumCircuit(2)
bell.h(0); bell.cx(0, 1); bell.measure_all()
bell = transpile(bell, backend)
times = []
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    backend.run(bell, shots=int(sys.argv[2])).result()
    times.append(time.perf_counter() - began)
print(json.dumps(times))
"""


def main() -> None:
    """Measure everything, or the parts that are named, then conclude."""
    claims: list[Claim] = []
    parts = [part for part in PARTS if part.__name__ in sys.argv[1:]] or PARTS
    for number, part in enumerate(parts, 1):
        print(f"{number} of {len(parts)}: {part.__name__.replace('_', ' ')}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="qtide-service-") as folder:
            devices = STAR if part is stock_client else DEVICE
            with LocalService(Path(folder), devices) as service:
                claims += part(service)
    conclude("service", claims)


def gaps(service: LocalService) -> list[Claim]:
    """How long the device is idle between two queued tasks."""
    client = service.client()
    tasks = together(lambda _: client.submit(Burst(GAP_BURST), "dev"), GAPS, 16)
    for task in tasks:
        task.result()
    rows = select(service, "SELECT started, used FROM tasks ORDER BY started")
    # the first ones ran while the rest were still being handed in
    ends = [row["started"] + row["used"] for row in rows][50:]
    starts = [row["started"] for row in rows][51:]
    found = [1000 * (start - end) for start, end in zip(starts, ends, strict=False)]
    peer = 1000 * hyperqueue()["gap"]
    p99 = quantiles(found, n=100)[98]
    print(f"idle gap, ms: median {median(found):.3f}, p99 {p99:.3f}; HyperQueue, median {peer:.3f}")
    return [
        at_most("idle gap between two queued tasks, ms, median", median(found), 1.0),
        at_most("idle gap between two queued tasks, ms, p99", p99, 5.0),
        at_most("idle gap, of HyperQueue's", median(found) / peer, 1.0),
    ]


def throughput(service: LocalService) -> list[Claim]:
    """Durable tasks per second, from 64 clients, each with a connection of its own."""
    clients = [service.client(f"user {n}") for n in range(CLIENTS)]

    def one(client: Client) -> None:
        for number in range(EACH):
            assert client.run(Burst(0.0, number), "dev") == number

    began = time.perf_counter()
    together(lambda n: one(clients[n]), CLIENTS, CLIENTS)
    rate = CLIENTS * EACH / (time.perf_counter() - began)
    peer = hyperqueue()["rate"]
    print(f"tasks per second: {rate:.0f}; HyperQueue, empty processes, not durable: {peer:.0f}")
    return [at_least("durable tasks per second, 64 clients over HTTP", rate, 500)]


def stock_client(service: LocalService) -> list[Claim]:
    """A task of 50 ms through the unmodified iqm-client."""
    python = python_with("iqm-client[qiskit]==36.0.0")
    done = subprocess.run(
        [python, "-c", IQM_PROGRAM, service.url, str(SHOTS), str(IQM_RUNS)],
        env={"IQM_TOKEN": service.token()},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    times = [1000 * each for each in json.loads(done.stdout.splitlines()[-1])]
    rows = select(service, "SELECT used FROM tasks WHERE state = 'done'")
    device = 1000 * median(row["used"] for row in rows)
    print(f"iqm-client: {median(times):.1f} ms, of which on the device {device:.1f} ms")
    return [at_most("a task of 50 ms through iqm-client 36, ms, median", median(times), 85.0)]


def closed_loop(service: LocalService) -> list[Claim]:
    """N jobs share the device; each computes between its bursts."""
    print(f"{'c/q':>4} {'jobs':>4} {'total s':>8} {'formula':>8} {'ratio':>6} {'occupancy':>9}")
    ratios = []
    for share in RATIOS:
        for jobs in JOBS:
            total = loop(service, jobs, share * BURST)
            expected = formula(jobs, share * BURST)
            ratio, busy = total / expected, jobs * CYCLES * BURST / total
            print(f"{share:4} {jobs:4} {total:8.3f} {expected:8.3f} {ratio:6.3f} {busy:9.3f}")
            ratios.append(ratio)
    return [
        at_most("closed loop, total time, of the formula's, worst", max(ratios), 1.03),
        at_least("closed loop, occupancy, of the formula's, worst", 1 / max(ratios), 0.97),
    ]


def kills(service: LocalService) -> list[Claim]:
    """Kill the service a hundred times while eight clients work."""
    clients = [service.client(f"user {n}") for n in range(KILL_CLIENTS)]
    stop, seen = threading.Event(), list[tuple[Client, str, dict[str, Any]]]()

    def one(client: Client) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            task = client.submit(Burst(0.002, number), "dev")
            assert task.result() == number
            seen.append((client, task.id, task.response))

    workers = [threading.Thread(target=one, args=(client,)) for client in clients]
    for worker in workers:
        worker.start()
    chance = random.Random(1)
    for number in range(KILLS):
        time.sleep(chance.uniform(0.0, 0.6))
        service.kill()
        service.start(ready=number % 5 > 0)  # one in five is killed while it is still starting
    stop.set()
    for worker in workers:
        worker.join()
    accepted = select(service, "SELECT count(*) AS n FROM tasks")[0]["n"]
    lost = accepted - len({name for _, name, _ in seen})
    twice = sum(client.task(name).response["ended"] != said["ended"] for client, name, said in seen)
    again = select(service, "SELECT count(*) AS n FROM tasks WHERE attempts > 1")[0]["n"]
    print(f"{KILLS} kills, {accepted} tasks, {again} of them ran again")
    return [
        at_most(f"tasks lost, {KILLS} kills of the service under load", lost, 0),
        at_most(f"tasks answered twice, {KILLS} kills", twice, 0),
    ]


def loop(service: LocalService, jobs: int, classical: float) -> float:
    """Seconds until all jobs are done."""
    clients = [service.client(f"job {n}") for n in range(jobs)]
    for client in clients:
        client.run(Burst(0.0), "dev")  # opens the connection

    def one(client: Client) -> None:
        for _ in range(CYCLES):
            client.run(Burst(BURST), "dev")
            time.sleep(classical)

    began = time.perf_counter()
    together(lambda n: one(clients[n]), jobs, jobs)
    return time.perf_counter() - began


def formula(jobs: int, classical: float) -> float:
    """The least time of N jobs of K bursts q and classical parts c on one FIFO device."""
    if jobs <= 1 + classical / BURST:
        return (jobs - 1) * BURST + CYCLES * (BURST + classical)
    return jobs * CYCLES * BURST + classical


def hyperqueue() -> dict[str, float]:
    """The gap and the rate of HyperQueue on this machine, now."""
    script = Path(__file__).with_name("hyperqueue_peer.py")
    done = subprocess.run(
        [sys.executable, script, str(GAP_BURST), str(GAPS)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def together(work: Callable[[int], Any], times: int, threads: int) -> list[Any]:
    """Call `work` this often, in this many threads."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(times)))


def select(service: LocalService, words: str) -> list[Any]:
    """Rows of the service's store."""
    store = connect(service.state / "store.sqlite")
    try:
        return store.execute(words).fetchall()
    finally:
        store.close()


PARTS = [gaps, throughput, stock_client, closed_loop, kills]

if __name__ == "__main__":
    main()
