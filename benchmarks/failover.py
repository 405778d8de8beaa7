"""Two services on one PostgreSQL: how long users wait when the one that leads is lost or replaced.

Beside it in the same run: SQLite, for tasks per second. Patroni, which does the same for PostgreSQL
itself, notices a lost leader after its `ttl`, by its documentation 30 s unless set otherwise.

    python benchmarks/failover.py                 # losses and rates
    sudo python benchmarks/failover.py soak 7200  # 380 faults, within two hours at most
    python benchmarks/failover.py soak-sqlite 3600  # 200 faults of a service with SQLite
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import urllib3
from claims import Claim, at_least, at_most, conclude

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.service.fence import workers
from qtide.service.local_service import LocalService
from qtide.service.postgresql import connect
from qtide.service.store import open_database

sys.path.append(str(Path(__file__).parent.parent))
from tests.service.network import Network
from tests.service.postgres import PostgresServer
from tests.service.serving import wait_until
from tests.service.test_books import busy, keep_diaries
from tests.service.test_failover import Load, refusal
from tests.service.test_hosts import HostedPair

DEVICE = '[devices.dev]\nkind = "burst"\npolicy = "fifo"\nretries = 1000\n'
KILLS, HANDOVERS, CLIENTS = 12, 8, 4
RATE_CLIENTS, EACH, ROUNDS = 32, 60, 3
GAPS, GAP_BURST = 300, 0.02
PATRONI = 30.0


class Pair:
    """Two services that share a database, and clients that know both."""

    def __init__(self, folder: Path, database: str) -> None:
        self.database = database
        self.services: list[LocalService] = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            made = LocalService(folder / name, DEVICE, f'store = "{database}"')
            self.services.append(made.start(ready=not self.services))
        self.token = self.services[0].token()
        self.urls = ",".join(each.url for each in self.services)

    def leader(self) -> LocalService:
        """The service that answers, as soon as one does."""
        while True:
            for each in self.services:
                try:
                    answer = urllib3.request("GET", f"{each.url}/health", timeout=1, retries=False)
                except urllib3.exceptions.HTTPError:
                    continue
                if answer.status == 200:
                    return each
            time.sleep(0.05)

    def standing_by(self, service: LocalService) -> bool:
        """Whether a service refuses because another one leads."""
        try:
            answer = urllib3.request("GET", f"{service.url}/health", timeout=1, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 503


class Users:
    """Clients that run tasks all the time, and the times at which each was answered."""

    def __init__(self, pair: Pair) -> None:
        self.answered: list[float] = []
        self.keys: set[str] = set()
        self.wrong = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(Client(pair.urls, pair.token), n))
            for n in range(CLIENTS)
        ]
        for each in self._threads:
            each.start()

    def _work(self, client: Client, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            key = f"{number}-{count}"
            self.wrong += client.run(Burst(0.002, [count]), "dev", key=key) != [count]
            self.keys.add(key)
            self.answered.append(time.monotonic())

    def longest_silence(self, since: float) -> float:
        """The longest time after `since` in which nobody got an answer."""
        times = [since, *sorted(each for each in self.answered if each > since)]
        return max(after - before for before, after in pairwise(times))

    def end(self) -> None:
        """Let each finish its task, and stop."""
        self._stop.set()
        for each in self._threads:
            each.join()


def main() -> None:
    """Measure all parts, or those that are named."""
    soaks = {"soak": soak, "soak-sqlite": soak_alone}
    if sys.argv[1:] and sys.argv[1] in soaks:
        limit = float(sys.argv[2]) if sys.argv[2:] else 3600.0
        conclude("failover", soaks[sys.argv[1]](limit))
        return
    parts = {"losses": losses, "rates": rates}
    chosen = [parts[name] for name in sys.argv[1:]] or list(parts.values())
    claims: list[Claim] = []
    for part in chosen:
        claims += part()
    conclude("failover", claims)


@contextmanager
def database() -> Iterator[PostgresServer]:
    """A PostgreSQL server of our own."""
    server = PostgresServer().start()
    try:
        yield server
    finally:
        server.stop()


def losses() -> list[Claim]:
    """Kill and replace the leader under load, again and again."""
    with database() as server, tempfile.TemporaryDirectory(prefix="qtide-failover-") as folder:
        pair = Pair(Path(folder), server.url)
        try:
            users = Users(pair)
            killed = [silence(pair, users, kill=True) for _ in range(KILLS)]
            replaced = [silence(pair, users, kill=False) for _ in range(HANDOVERS)]
            users.end()
            rows = connect(server.url).execute("SELECT key, state FROM tasks").fetchall()
        finally:
            for each in pair.services:
                each.kill()
    lost = len(users.keys - {row["key"] for row in rows if row["state"] == "done"})
    extra = len(rows) - len(users.keys)
    p95 = quantiles(killed, n=20)[18]
    print(f"{'seconds without an answer':32} {'median':>7} {'p95':>7} {'longest':>8}")
    for name, times in (("leader killed", killed), ("leader told to end", replaced)):
        high = quantiles(times, n=20)[18]
        print(f"{name:32} {median(times):7.2f} {high:7.2f} {max(times):8.2f}")
    print(f"{'Patroni, ttl of its leader':32} {PATRONI:7.2f}")
    return [
        at_most(f"{KILLS} kills of the leader: seconds without an answer, p95", p95, 5.0),
        at_most(f"{HANDOVERS} hand-overs: seconds without an answer, longest", max(replaced), 1.0),
        at_most("tasks lost or wrong", lost + users.wrong, 0),
        at_most("tasks accepted twice", extra, 0),
        at_most("seconds until a standby leads, of Patroni's default", p95 / PATRONI, 1.0),
    ]


def silence(pair: Pair, users: Users, *, kill: bool) -> float:
    """How long nobody gets an answer when the leader goes; it comes back as the standby."""
    time.sleep(random.Random(len(users.answered)).uniform(0.2, 0.8))
    leader = pair.leader()
    began = time.monotonic()
    leader.kill() if kill else leader.stop()
    enough = len(users.answered) + 20
    while len(users.answered) < enough:
        time.sleep(0.01)
    leader.start(ready=False)
    while not pair.standing_by(leader):
        time.sleep(0.05)
    return users.longest_silence(began)


def rates() -> list[Claim]:
    """Durable tasks per second and idle gaps, with PostgreSQL and with SQLite in turn."""
    found: dict[str, list[float]] = {"SQLite": [], "PostgreSQL": []}
    idle: list[float] = []
    with database() as server:
        for _ in range(ROUNDS):
            for name, head in (("SQLite", ""), ("PostgreSQL", f'store = "{server.url}"')):
                with (
                    tempfile.TemporaryDirectory(prefix="qtide-failover-") as folder,
                    LocalService(Path(folder), DEVICE, head) as service,
                ):
                    found[name].append(rate(service))
                    if head:
                        idle += gaps(service)
    ratio = median(found["PostgreSQL"]) / median(found["SQLite"])
    p99 = quantiles(idle, n=100)[98]
    print(f"{'durable tasks per second':32} {'median':>7}")
    for name, values in found.items():
        print(f"{name:32} {median(values):7.0f}")
    print(f"idle gap with PostgreSQL, ms: median {median(idle):.3f}, p99 {p99:.3f}")
    return [
        at_least("durable tasks per second with PostgreSQL, of SQLite's", ratio, 0.6),
        at_most("idle gap with PostgreSQL, ms, p99", p99, 1.0),
    ]


def rate(service: LocalService) -> float:
    """Tasks per second of many clients, each with a connection of its own."""
    clients = [service.client(f"user {n}") for n in range(RATE_CLIENTS)]

    def one(client: Client) -> None:
        for number in range(EACH):
            assert client.run(Burst(0.0, number), "dev") == number

    threads = [threading.Thread(target=one, args=(client,)) for client in clients]
    began = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return RATE_CLIENTS * EACH / (time.perf_counter() - began)


def gaps(service: LocalService) -> list[float]:
    """Milliseconds that the device is idle between two queued tasks."""
    client = service.client("gaps")
    tasks = [client.submit(Burst(GAP_BURST), "dev", name="gap") for _ in range(GAPS)]
    for task in tasks:
        task.result()
    opened = open_database(service.state)
    words = "SELECT started, used FROM tasks WHERE name = 'gap' ORDER BY started"
    rows = opened.execute(words).fetchall()
    opened.close()
    ends = [row["started"] + row["used"] for row in rows][50:]
    starts = [row["started"] for row in rows][51:]
    return [1000 * (start - end) for start, end in zip(starts, ends, strict=False)]


FAULTS = {
    "service": 100,
    "standby": 100,
    "database": 100,
    "service while the database is away": 20,
    "database while the standby takes over": 20,
    "pause": 20,
    "partition": 20,
}
"""How often each of two services on one PostgreSQL is to fail."""
ALONE = {"service": 100, "device": 100}
"""The same of a service with SQLite."""


class Alone:
    """A service with a SQLite file, and a client that knows it."""

    def __init__(self, folder: Path, device: str) -> None:
        self.service = LocalService(folder, device).start()
        self.client = self.service.client()

    def rows(self, words: str) -> list[dict[str, Any]]:
        """What the store says."""
        opened = open_database(self.service.state)
        try:
            return [dict(row) for row in opened.execute(words).fetchall()]
        finally:
            opened.close()


def soak(limit: float) -> list[Claim]:
    """Kill service, standby and database, pause a leader and part hosts, at random under load."""
    with ExitStack() as opened:
        folder, device = opened.enter_context(keeping_diaries())
        os.environ |= dict.fromkeys(("SSL_CERT_FILE", "QTIDE_CA_FILE"), str(folder / "ca.pem"))
        network = Network()
        opened.callback(network.remove)
        there = network.host("d")
        server = PostgresServer(there.address, there.within).start()
        opened.callback(server.stop)
        HostedPair.device = device
        HostedPair.ahead = 0.0  # one clock tells whether two tasks were on the device at once
        pair = HostedPair(folder, network, server.url)
        opened.callback(pair.end)
        claims = endured(pair, limit, FAULTS, lambda what: fail(what, pair, server))
        return [*claims, *audited(pair, folder)]


def soak_alone(limit: float) -> list[Claim]:
    """Kill a service with SQLite, and the process of its device, at random under load."""
    with keeping_diaries() as (folder, device):
        alone = Alone(folder, device)
        try:
            claims = endured(alone, limit, ALONE, lambda what: fail_alone(what, alone.service))
            return [*claims, *audited(alone, folder)]
        finally:
            alone.service.kill()


@contextmanager
def keeping_diaries() -> Iterator[tuple[Path, str]]:
    """A folder, and a device in a configuration whose processes keep their notes there."""
    with tempfile.TemporaryDirectory(prefix="qtide-failover-") as name:
        keep_diaries(Path(name))
        yield Path(name), f'{DEVICE}python = "{Path(name) / "python"}"\n'


def endured(
    pair: HostedPair | Alone, limit: float, faults: dict[str, int], let_fail: Callable[[str], None]
) -> list[Claim]:
    """Let each fault happen so often, in any order, while clients work, and check their answers."""
    done, end, chance = dict.fromkeys(faults, 0), time.monotonic() + limit, random.Random()
    load = Load(pair.client)
    while time.monotonic() < end and done != faults:
        (what,) = chance.choices(
            [*faults], [number - done[each] for each, number in faults.items()]
        )
        let_fail(what)
        done[what] += 1
        load.more(chance.randint(1, 10))
        print(f"\r{done}, {len(load.answers)} answers", end="", flush=True)
    load.end()
    print()
    rows = pair.rows("SELECT key, state FROM tasks")
    known = {row["key"] for row in rows if row["state"] == "done"}
    wrong = [
        key for key, found in load.answers.items() if found != [int(n) for n in key.split("-")]
    ]
    return [
        *(at_least(f"failures: {each}", done[each], faults[each]) for each in faults),
        at_most("tasks lost or wrong", len(set(load.answers) - known) + len(wrong), 0),
        at_most("tasks accepted twice", len(rows) - len(load.answers), 0),
    ]


def fail(what: str, pair: HostedPair, server: PostgresServer) -> None:
    """Let something fail, and bring it back."""
    leader = pair.leader()
    standby = pair.other(leader)
    if what == "database":
        server.kill()
        time.sleep(random.choice((0.2, 0.2, 4.0)))  # also for longer than the lease
        server.start()
    elif what == "service while the database is away":
        server.kill()
        leader.kill()
        time.sleep(random.choice((0.2, 4.0)))
        server.start()
        wait_until(lambda: refusal(standby) is None)  # by itself, without a restart
    elif what == "database while the standby takes over":
        leader.kill()
        time.sleep(random.uniform(2.5, 4.0))
        server.kill()
        server.start()
    elif what == "pause":
        os.kill(leader.pid, signal.SIGSTOP)
        wait_until(lambda: refusal(standby) is None)
        os.kill(leader.pid, signal.SIGCONT)
        leader.wait(180.0)
    elif what == "partition":
        pair.host_of(leader).cut_off()
        wait_until(lambda: refusal(standby) is None)
        pair.host_of(leader).rejoin()
        leader.wait(180.0)
    else:
        (leader if what == "service" else standby).kill()
    pair.settle()


def fail_alone(what: str, service: LocalService) -> None:
    """Kill the service or its device's process, in the middle of its work."""
    if what == "service":
        service.kill()
        service.start()
    else:
        wait_until(lambda: workers(service.pid))
        for each in workers(service.pid):
            os.kill(each, signal.SIGKILL)


def audited(pair: HostedPair | Alone, folder: Path) -> list[Claim]:
    """Compare the books with what the device's processes noted themselves."""
    booked = pair.rows("SELECT sum(seconds) AS seconds, count(*) AS number FROM occupations")[0]
    noted = sorted(busy(folder), key=lambda each: each.began)
    overlaps = sum(b.began < a.began + a.seconds - 1e-3 for a, b in pairwise(noted))
    difference = abs(sum(each.seconds for each in noted) - booked["seconds"])
    print(f"{len(noted)} occupations, {booked['number']} booked")
    return [
        at_most("times that two tasks were on the device", overlaps, 0),
        at_most("seconds of the device that the books lack, or have twice", difference, 0.001),
    ]


if __name__ == "__main__":
    main()
