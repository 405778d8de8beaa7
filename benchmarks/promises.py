"""Promises under random competing load, and what serving by job is worth.

The bound is zero: no task that was accepted with a longest wait starts later, in virtual time (all
policies, with and without calibrations and timing, commits of 5 ms) and on a real service. The peer
of serving by job is first come, first served, with the same jobs. With `--postgresql`, the real
service keeps its tasks there instead of in a file.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import mean

from claims import Claim, at_least, at_most, conclude

from qtide.apps.synthetic import read
from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst, encode
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import Configuration
from qtide.service.intake import Submission
from qtide.service.local_service import LocalService
from qtide.service.policies.policy import POLICIES
from qtide.service.service import Service
from qtide.service.store import open_database
from qtide.service.task import Caller
from qtide.service.virtual_service import SimulatedDevice, SimulatedStore

sys.path.append(str(Path(__file__).parent.parent))
from tests.service.postgres import store_setting
from tests.service.rivals import Rivals

CALIBRATION = {"every": 40.0, "lasts": 5.0}
LOADS = (0.6, 1.5)
REAL, CLIENTS, LIMIT_S = 500, 8, 300.0
JOBS = 64


def main() -> None:
    """Measure everything, or the parts that are named, then conclude."""
    parts = [part for part in PARTS if part.__name__ in sys.argv[1:]] or PARTS
    conclude("promises", [claim for part in parts for claim in part()])


def virtual() -> list[Claim]:
    """Every policy, timed and untimed, with and without calibrations, at two loads."""
    print(f"{'policy':9} {'device':8} {'calibration':11} {'load':>4}", end=" ")
    print(f"{'promised':>8} {'refused':>7} {'broken':>6}")
    accepted = broken = 0
    for policy in POLICIES.names():
        for untimed in (False, True):
            for plan in (None, CALIBRATION):
                for load in LOADS:
                    setup = {"policy": policy, "calibration": plan}
                    rivals = Rivals(7, setup, load=load, untimed=untimed, lasts=300.0).run()
                    accepted += len(rivals.promised)
                    broken += len(rivals.broken)
                    print(
                        f"{policy:9} {'untimed' if untimed else 'timed':8}"
                        f" {'yes' if plan else 'no':11} {load:4} {len(rivals.promised):8}"
                        f" {rivals.refused:7} {len(rivals.broken):6}"
                    )
    return [
        at_least("promises accepted in virtual time", accepted, 2000),
        at_most("of these broken", broken, 0),
    ]


def real() -> list[Claim]:
    """Eight clients of a real service submit at random, until enough promises were accepted."""
    with tempfile.TemporaryDirectory(prefix="qtide-promises-") as folder:
        devices = '[devices.dev]\nkind = "burst"\n'
        with (
            store_setting(postgresql="--postgresql" in sys.argv) as setting,
            LocalService(Path(folder), devices, setting) as service,
        ):
            accepted = compete(service)
            rows = promised(service)
    late = [row for row in rows if row["started"] is None or row["late"] > 0]
    print(f"on a real service: {accepted} promised, {len(late)} broken", end="")
    print("".join(f"; {1000 * row['late']:.1f} ms late" for row in late[:5]))
    return [
        at_least("promises accepted by a real service", accepted, REAL),
        at_most("broken by a real service", len(late), 0),
    ]


def compete(service: LocalService) -> int:
    """How many promises were accepted."""
    accepted, end = list[str](), time.monotonic() + LIMIT_S

    def one(client: Client, chance: random.Random) -> None:
        while len(accepted) < REAL and time.monotonic() < end:
            wait = chance.choice((None, 0.1, 0.3, 1.0, 5.0))
            burst = Burst(chance.choice((0.001, 0.01, 0.03)))
            try:
                task = client.submit(burst, "dev", max_wait=wait)
            except ServiceFailed as refused:
                assert refused.status == 409, refused
                continue
            if wait is not None:
                accepted.append(task.id)
            time.sleep(chance.expovariate(1 / 0.1))

    users = [service.client(f"user {n}") for n in range(CLIENTS)]
    threads = [
        threading.Thread(target=one, args=(user, random.Random(n))) for n, user in enumerate(users)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(accepted)


def promised(service: LocalService) -> list[dict[str, float]]:
    """Once all are over: when each promised task started, and how late that was."""
    words = "SELECT started, started - submitted - max_wait AS late FROM tasks"
    store = open_database(service.state)
    try:
        while store.execute("SELECT 1 FROM tasks WHERE ended IS NULL").fetchone():
            time.sleep(0.1)
        rows = store.execute(f"{words} WHERE max_wait IS NOT NULL").fetchall()
        return [dict(row) for row in rows]
    finally:
        store.close()


def by_job() -> list[Claim]:
    """Jobs of the published shape at once: of one user under `fair`, of as many under `jobs`."""
    print(f"{'policy':6} {'users':>5} {'total s':>8} {'mean wall s':>11}")
    found = {
        (policy, users): walls(policy, users)
        for policy, users in (("fifo", 1), ("fair", 1), ("jobs", JOBS))
    }
    for (policy, users), wall in found.items():
        print(f"{policy:6} {users:5} {max(wall):8.0f} {mean(wall):11.0f}")
    first = found["fifo", 1]
    claims = []
    for (policy, users), wall in list(found.items())[1:]:
        name = f"{JOBS} jobs of {users} user{'s' if users > 1 else ''} under {policy}"
        ratio = mean(wall) / mean(first)
        claims.append(at_most(f"{name}: mean wall, of first come first served", ratio, 0.65))
        # the last job is alone at the end, with nobody to fill the gaps between its payloads
        claims.append(at_most(f"{name}: total time, of the same", max(wall) / max(first), 1.02))
    return claims


def walls(policy: str, users: int) -> list[float]:
    """How long each job takes, in virtual time."""
    world, shape = VirtualWorld(1), read("published")
    store, device = SimulatedStore(world), SimulatedDevice(world)
    words = {"devices": {"dev": {"kind": "burst", "policy": policy, "limit": 1e6}}}
    service = Service(Configuration.model_validate(words), world, store, device)

    async def job(number: int) -> float:
        caller = Caller(f"user {number % users}", "", number + 1)
        began = world.now()
        for _ in range(shape.iterations):
            for step in shape.steps:
                works = [world.start(world.sleep(max(step.tasks)))] if step.tasks else []
                if step.quantum:
                    submission = Submission("dev", encode(Burst(step.quantum_s)))
                    await service.wait(await service.submit(caller, submission), 1e9)
                await world.settled(works)
        return world.now() - began

    async def together() -> list[float]:
        await service.open()
        await world.sleep(5.0)
        found = await world.all_of([job(number) for number in range(JOBS)])
        await service.close()
        return found

    return world.run(together(), until=1e7)


PARTS = [virtual, real, by_job]

if __name__ == "__main__":
    main()
