"""Sessions: small calls beside a process pool, loky and Dask; and a port under two strategies.

10,000 calls of a millisecond on two workers, each peer by its plainest call, in the same run. Then
the VQE script of the examples on a Slurm of this computer, under `elastic` and under `static`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from claims import Claim, at_least, at_most, conclude

import qtide

CALLS = 10_000
WORKERS = 2
ROUNDS = 2
"""Every peer is measured so often, in turns; its median counts."""
PORT = Path(__file__).parents[1] / "examples" / "vqe_with_qtide.py"


def millisecond(number: int) -> int:
    """A call that takes a millisecond and no processor."""
    time.sleep(0.001)
    return number


def by_session(folder: Path) -> float:
    """Seconds of `s.map`."""
    with qtide.session(cluster=f"local:{WORKERS}", strategy="static", runs=folder) as session:
        list(session.map(abs, range(WORKERS)))
        return _seconds(lambda: list(session.map(millisecond, range(CALLS))))


def by_pool(_: Path) -> float:
    """Seconds of `ProcessPoolExecutor.map`."""
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(abs, range(WORKERS)))
        return _seconds(lambda: list(pool.map(millisecond, range(CALLS))))


def by_loky(_: Path) -> float:
    """Seconds of `joblib.Parallel`, which makes batches of its own."""
    import joblib

    with joblib.Parallel(WORKERS, backend="loky") as loop:
        loop(joblib.delayed(abs)(n) for n in range(WORKERS))
        return _seconds(lambda: loop(joblib.delayed(millisecond)(n) for n in range(CALLS)))


def by_dask(_: Path) -> float:
    """Seconds of Dask's `Client.map` and `gather`."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(abs, range(WORKERS)))
        return _seconds(lambda: client.gather(client.map(millisecond, range(CALLS))))


PEERS = {"s.map": by_session, "process pool": by_pool, "loky": by_loky, "Dask": by_dask}


def rates(folder: Path) -> dict[str, float]:
    """Calls per second of each peer."""
    found: dict[str, list[float]] = {name: [] for name in PEERS}
    for _ in range(ROUNDS):
        for name, peer in PEERS.items():
            found[name].append(CALLS / peer(folder))
            print(f"{name}: {found[name][-1]:,.0f} calls per second", flush=True)
    return {name: statistics.median(each) for name, each in found.items()}


def port(folder: Path) -> dict[str, qtide.Run[Any]]:
    """The VQE script on the box, once to warm up, then under both strategies."""
    found = {}
    box = [sys.executable, "-m", "qtide", "box"]
    place = ["--folder", str(folder / "box")]
    subprocess.run([*box, "up", *place], check=True)
    try:
        said = subprocess.run([*box, "env", *place], capture_output=True, text=True, check=True)
        words = (line.removeprefix("export ").split("=", 1) for line in said.stdout.splitlines())
        environment = os.environ | {name: value.strip("'\"") for name, value in words}
        for strategy in ("static", "static", "elastic"):
            _script(strategy, folder, environment)
            found[strategy] = qtide.runs(folder / "runs")[-1]
    finally:
        subprocess.run([*box, "down", *place], check=True)
    return found


def _script(strategy: str, folder: Path, environment: dict[str, str]) -> None:
    own = folder / f"run-{strategy}"
    own.mkdir(exist_ok=True)
    (own / "qtide.toml").write_text(f'cluster = "slurm"\nstrategy = "{strategy}"\n')
    options = {"QTIDE_RUNS": str(folder / "runs")}  # one folder: both know what the first learnt
    command = [sys.executable, str(PORT)]
    subprocess.run(command, env=environment | options, cwd=own, check=True)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure and conclude."""
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory() as folder:
        found = rates(Path(folder))
        print(f"{'calls of 1 ms':<16}{'per second':>12}")
        for name, rate in found.items():
            print(f"{name:<16}{rate:>12,.0f}")
        ours = found["s.map"]
        claims.append(at_least("rate of s.map, of Dask's", ours / found["Dask"], 1))
        claims.append(at_least("rate of s.map, of the pool's", ours / found["process pool"], 0.7))
        if "--no-slurm" not in sys.argv:
            runs = port(Path(folder))
            print(f"\n{'VQE port':<16}{'wall s':>12}{'held node-s':>14}")
            figures = {name: run.metrics for name, run in runs.items()}
            for name, each in figures.items():
                print(f"{name:<16}{each.total:>12.2f}{each.nodes_held:>14.2f}")
            elastic, static = figures["elastic"], figures["static"]
            claims.append(at_most("wall, of static's", elastic.total / static.total, 1.03))
            held = elastic.nodes_held / static.nodes_held
            claims.append(at_most("node-seconds, of static's", held, 0.4))
    conclude("sessions", claims)


if __name__ == "__main__":
    main()
