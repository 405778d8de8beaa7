"""Two services share a PostgreSQL: whichever is lost, the other goes on, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.service.fence import Fence, workers
from qtide.service.local_service import LocalService
from qtide.service.postgresql import (
    DEPOSED,
    PROBES,
    RENEW,
    SILENCE,
    TAKE,
    PostgresDatabase,
    PostgresStore,
    connect,
)
from qtide.service.store import Database, StoreFailed
from tests.service.postgres import PostgresServer
from tests.service.serving import wait_until

DEVICE = """
[devices.dev]
kind = "burst"
retries = 1000
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made.start()
    made.stop()


class Pair:
    """Two services on one database, and a client that knows both."""

    device = DEVICE

    def __init__(self, folder: Path, database: str) -> None:
        self.database = database
        self.services = [self._made(folder / name) for name in ("first", "second")]
        self.services[0].start()
        self.services[1].start(ready=False)
        wait_until(lambda: refusal(self.services[1]) == "standby")
        self.token = self.services[0].token("ada")
        urls = ",".join(each.url for each in self.services)
        self.client = Client(urls, self.token)

    def _made(self, folder: Path) -> LocalService:
        folder.mkdir()
        return LocalService(folder, self.device, f'store = "{self.database}"')

    def leader(self) -> LocalService:
        """The service that leads, as soon as one does."""
        leading: list[LocalService] = []

        def found() -> bool:
            leading[:] = [each for each in self.services if refusal(each) is None]
            return bool(leading)

        wait_until(found)
        return leading[0]

    def rows(self, words: str) -> list[dict[str, Any]]:
        database = connect(self.database)
        try:
            return [dict(row) for row in database.execute(words)]
        finally:
            database.close()

    def end(self) -> None:
        for each in self.services:
            each.kill()


@pytest.fixture
def pair(tmp_path: Path, server: PostgresServer) -> Iterator[Pair]:
    empty(server.url)
    made = Pair(tmp_path, server.url)
    yield made
    made.end()


def empty(database: str) -> None:
    opened = connect(database)
    opened.execute("DROP SCHEMA public CASCADE")
    opened.execute("CREATE SCHEMA public")
    opened.close()


def refusal(service: LocalService) -> str | None:
    """Why a service refuses a question: None if it leads, "away" if it does not run."""
    try:
        answer = urllib3.request("GET", f"{service.url}/health", timeout=2.0, retries=False)
    except urllib3.exceptions.HTTPError:
        return "away"
    return None if answer.status == 200 else str(answer.json().get("error", "store"))


class Load:
    """Clients that run short tasks until they are stopped."""

    def __init__(self, client: Client, number: int = 3) -> None:
        self.answers: dict[str, list[int]] = {}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(client.__copy__(), n), daemon=True)
            for n in range(number)
        ]
        for each in self._threads:
            each.start()

    def _work(self, client: Client, number: int) -> None:
        done = 0
        while not self._stop.is_set():
            done += 1
            answer = client.run(Burst(0.005, [number, done]), "dev", key=f"{number}-{done}")
            self.answers[f"{number}-{done}"] = answer

    def more(self, number: int) -> None:
        """Wait for so many further answers."""
        enough = len(self.answers) + number
        wait_until(lambda: len(self.answers) >= enough)

    def end(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(180.0)
            assert not each.is_alive()


def check(pair: Pair, load: Load) -> None:
    """Every task was answered once, with its own answer, and is in the database once."""
    load.end()
    assert all(answer == [int(n) for n in key.split("-")] for key, answer in load.answers.items())
    rows = pair.rows("SELECT key, state FROM tasks")
    assert sorted(row["key"] for row in rows) == sorted(load.answers)
    assert {row["state"] for row in rows} == {"done"}


def test_a_standby_takes_over_however_often_a_leader_is_killed(pair: Pair) -> None:
    load, chance = Load(pair.client), random.Random(1)
    for _ in range(2):
        load.more(chance.randint(1, 10))
        leader = pair.leader()
        leader.kill()
        leader.start(ready=False)
    load.more(10)
    check(pair, load)


def test_a_leader_that_is_told_to_end_hands_over_without_a_refusal(pair: Pair) -> None:
    load = Load(pair.client)
    load.more(10)
    first, second = pair.services
    shown = urllib3.request("GET", f"{second.url}/", redirect=False)  # as a browser asks
    assert (shown.status, shown.headers["Location"]) == (307, f"{first.url}/")
    assert first.stop() == 0
    load.more(10)
    assert pair.leader() is second
    check(pair, load)


def test_a_suspended_leader_loses_its_workers_and_writes_nothing_when_it_comes_back(
    pair: Pair,
) -> None:
    first, second = pair.services
    long = pair.client.submit(Burst(600.0), "dev")
    wait_until(lambda: long.refresh().state == "running")
    os.kill(first.pid, signal.SIGSTOP)
    wait_until(lambda: not workers(first.pid))
    wait_until(lambda: pair.leader() is second)
    assert pair.client.task(long.id).cancel().refresh(30.0).state == "cancelled"
    assert pair.client.run(Burst(0.01, [7]), "dev") == [7]
    before = pair.rows("SELECT * FROM tasks ORDER BY sequence")
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(30.0) == DEPOSED
    assert pair.rows("SELECT * FROM tasks ORDER BY sequence") == before


def test_a_leader_whose_lease_nobody_watches_ends(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its standby takes over; otherwise a suspended leader's workers would run on."""
    empty(server.url)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    fence = Fence()
    monkeypatch.setattr("qtide.service.postgresql.Fence", lambda: fence)
    store = PostgresStore(server.url)
    try:
        assert store.take_lead("one", "")
        asyncio.run(store.write(lambda _: None))
        assert ended == []
        os.kill(fence.process, signal.SIGKILL)
        wait_until(lambda: ended)
        assert set(ended) == {DEPOSED}
    finally:
        store.close()


def test_a_database_that_is_killed_loses_nothing(pair: Pair, server: PostgresServer) -> None:
    load = Load(pair.client)
    for away in (0.0, 4.0):  # for longer than the lease, too
        load.more(5)
        server.kill()
        time.sleep(away)
        server.start()
    load.more(10)
    check(pair, load)


def test_a_commit_that_a_killed_database_lost_is_not_taken_for_another_ones(
    server: PostgresServer,
) -> None:
    """After a crash, PostgreSQL gives the numbers of lost transactions to the next ones."""
    empty(server.url)
    store = PostgresStore(server.url)

    def cut_off(database: Database) -> None:
        database.execute("INSERT INTO operators VALUES ('ada')")
        server.kill()
        server.start()
        others = connect(server.url)
        for number in range(20):
            others.execute("INSERT INTO operators VALUES (?)", (f"user {number}",))
        others.close()

    try:
        assert store.take_lead("one", "")
        with pytest.raises(StoreFailed, match="lost a commit"):
            asyncio.run(store.write(cut_off))
        assert asyncio.run(store.write(lambda _: "goes on")) == "goes on"
    finally:
        store.close()


def test_a_service_can_be_stopped_while_nobody_knows_whether_its_last_commit_was_made(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qtide.service.postgresql.UNCERTAIN", 1e9)
    empty(server.url)
    store, away = PostgresStore(server.url), threading.Event()

    def cut_off(database: Database) -> None:
        database.execute("INSERT INTO operators VALUES ('ada')")
        server.kill()
        away.set()

    try:
        assert store.take_lead("one", "")
        store.post(cut_off)
        assert away.wait(60.0)
        closing = threading.Thread(target=store.close, daemon=True)
        closing.start()
        closing.join(60.0)
        assert not closing.is_alive()
    finally:
        server.start()


def test_a_leader_writes_again_after_its_database_could_only_be_read(
    server: PostgresServer,
) -> None:
    """As when a replica takes the place of the server, or its disk was full."""
    empty(server.url)
    store, operator = PostgresStore(server.url), connect(server.url)

    def writes() -> bool:
        with suppress(StoreFailed):
            asyncio.run(store.write(lambda _: None))
            return True
        return False

    try:
        assert store.take_lead("one", "")
        for only, wanted in (("on", False), ("off", True)):
            operator.execute(f"ALTER SYSTEM SET default_transaction_read_only = {only}")
            operator.execute("SELECT pg_reload_conf()")
            wait_until(lambda wanted=wanted: writes() is wanted)
    finally:
        store.close()
        operator.close()


def test_a_task_of_a_lost_leader_runs_on_the_other_and_the_site_pays_for_what_was_lost(
    pair: Pair,
) -> None:
    first, _ = pair.services
    cut, *waiting = [
        pair.client.submit(Burst(1.5 if n == 0 else 0.1, [n]), "dev") for n in range(3)
    ]
    wait_until(lambda: cut.refresh().response["started"] is not None)
    first.kill()
    assert [task.result(60.0) for task in (cut, *waiting)] == [[0], [1], [2]]
    assert sum(row["attempts"] for row in pair.rows("SELECT attempts FROM tasks")) in (3, 4)
    first.start(ready=False)  # what its device did is in a file of that host
    site = "SELECT task FROM occupations WHERE user = '(site)'"
    wait_until(lambda: [row["task"] for row in pair.rows(site)] == [cut.id])
    assert refusal(first) == "standby"


def test_a_transaction_that_a_lost_host_left_open_ends_soon_and_blocks_no_standby(
    server: PostgresServer,
) -> None:
    empty(server.url)
    lost, standby = connect(server.url), connect(server.url)
    try:
        lost.execute("BEGIN")
        lost.execute(RENEW, (0,))  # now its host is gone, and nobody ends the transaction
        assert standby.execute(TAKE, ("two", "")).fetchone() is None
        wait_until(lambda: standby.execute(TAKE, ("two", "")).fetchone() is not None)
    finally:
        lost.close()
        standby.close()


def test_both_ends_of_a_connection_notice_that_the_other_is_gone(server: PostgresServer) -> None:
    database = PostgresDatabase(f"{server.url}?options=-c%20search_path%3Dmine")
    try:
        assert database.execute("SHOW search_path").fetchone()[0] == "mine"
        words = "SELECT name, setting FROM pg_settings WHERE name LIKE 'tcp_%'"
        found = {row["name"]: int(row["setting"]) for row in database.execute(words)}
        assert found == {f"tcp_{name}": value for name, value in PROBES.items()} | {
            "tcp_user_timeout": SILENCE
        }
    finally:
        database.close()
