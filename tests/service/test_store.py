"""Writes are on disk when they return, and a failing one does not affect others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from qtide.core.world.virtual import VirtualWorld
from qtide.service import queries
from qtide.service.store import (
    Action,
    AlreadyStored,
    Database,
    FileStore,
    Rows,
    StoreFailed,
    ValueTooLarge,
    connect,
    in_memory,
)
from qtide.service.virtual_service import SimulatedStore

DRAIN = "INSERT INTO drains VALUES (?, '', 0, 0)"


def draining(name: str) -> Action[Rows]:
    return lambda db: db.execute(DRAIN, (name,))


def names(file: Path) -> list[str]:
    with sqlite3.connect(file) as other:
        return [row[0] for row in other.execute("SELECT device FROM drains ORDER BY device")]


def test_what_was_written_is_there_for_another_process(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    store = FileStore(file)

    async def write() -> list[str]:
        await asyncio.gather(*(store.write(draining(f"{n:03}")) for n in range(300)))
        return names(file)

    assert asyncio.run(write()) == [f"{n:03}" for n in range(300)]
    store.close()


def test_a_write_that_fails_does_not_affect_the_others(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store.sqlite")

    async def write() -> list[object]:
        return await asyncio.gather(
            *(store.write(draining(name)) for name in ("a", "b", "a", "c")),
            return_exceptions=True,
        )

    results = asyncio.run(write())
    store.close()
    assert [isinstance(each, AlreadyStored) for each in results] == [*(False, False, True, False)]
    assert names(tmp_path / "store.sqlite") == ["a", "b", "c"]


def test_a_write_of_any_error_fails_alone_and_the_store_goes_on(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store.sqlite")
    store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)

    def spoil(_: Database) -> None:
        raise RuntimeError("not SQLite's")

    async def write() -> list[object]:
        huge = draining("x" * 20_000)
        return await asyncio.gather(
            *(store.write(each) for each in (draining("a"), huge, spoil, draining("b"))),
            return_exceptions=True,
        )

    results = asyncio.run(write())
    assert [isinstance(each, ValueTooLarge) for each in results] == [False, True, True, False]
    asyncio.run(store.write(draining("c")))
    store.close()
    assert names(tmp_path / "store.sqlite") == ["a", "b", "c"]


def test_what_is_urgent_does_not_wait_for_a_long_look(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store.sqlite")
    enough = threading.Event()

    async def look() -> tuple[bool, bool]:
        long = asyncio.ensure_future(store.look(lambda _: enough.wait(60.0)))
        urgent = await store.look(lambda db: db.execute("SELECT 1").fetchone()[0] == 1, urgent=True)
        waiting = not long.done()
        enough.set()
        return urgent and waiting, await long

    assert asyncio.run(look()) == (True, True)
    store.close()


@pytest.mark.parametrize("user", [None, "ada"])
@pytest.mark.parametrize("states", [["queued"], ["done", "failed"], ["queued", "running"]])
def test_lists_by_state_look_into_an_index_only(user: str | None, states: list[str]) -> None:
    asked: list[str] = []
    db = in_memory()
    db.set_trace_callback(asked.append)
    assert queries.of_user(user, states, 100, None)(db) == []
    plan = [row["detail"] for row in db.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()]
    assert [step for step in plan if step.startswith("SCAN tasks")] == []
    index = "tasks_by_user_and_state" if user else "tasks_by_state"
    assert sum(f"USING COVERING INDEX {index} " in step for step in plan) == len(states)


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store.sqlite")
    other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    store._connection.execute("PRAGMA busy_timeout=1")
    other.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        await store.write(lambda db: db.execute(DRAIN, ("a",)))

    with pytest.raises(StoreFailed, match="cannot be written: database is locked"):
        asyncio.run(write())
    other.execute("ROLLBACK")
    asyncio.run(write())
    store.close()
    assert names(tmp_path / "store.sqlite") == ["a"]


def test_a_simulated_store_keeps_what_was_committed_before_a_power_cut() -> None:
    world = VirtualWorld()
    store = SimulatedStore(world, commit_s=1.0)

    async def main() -> tuple[list[bool], list[str]]:
        writes = [world.start(store.write(draining("committed, not told")))]
        await world.sleep(0.1)
        writes.append(world.start(store.write(draining("too late"))))
        await world.sleep(0.7)
        after = store.reopened()
        await world.settled(writes)
        await after.write(draining("later"))
        found = after.read(lambda db: db.execute("SELECT device FROM drains").fetchall())
        return [each.cancelled() for each in writes], [row["device"] for row in found]

    gone, kept = world.run(main())
    assert gone == [True, True]
    assert sorted(kept) == ["committed, not told", "later"]


def test_a_simulated_store_that_is_away_refuses_and_works_again_later() -> None:
    world = VirtualWorld()
    store = SimulatedStore(world)

    async def main() -> None:
        store.broken = True
        with pytest.raises(StoreFailed, match="away"):
            await store.write(draining("a"))
        store.broken = False
        await store.write(draining("a"))
        with pytest.raises(AlreadyStored):
            await store.write(draining("a"))

    world.run(main())


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    connect(file).close()
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA user_version=99")
    with pytest.raises(StoreFailed, match="newer qtide"):
        connect(file)


def test_only_its_owner_may_read_the_store(tmp_path: Path) -> None:
    connect(tmp_path / "store.sqlite").close()
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0


def test_a_file_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    letter = "a file that is not a store, but long enough for a page\n" * 99
    (tmp_path / "store.sqlite").write_text(letter)
    with pytest.raises(StoreFailed, match="cannot be opened"):
        connect(tmp_path / "store.sqlite")
    assert (tmp_path / "store.sqlite").read_text() == letter


def test_several_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    """A service that starts, and the command that makes the first token for it."""
    together = threading.Barrier(8)

    def opened(_: int) -> int:
        together.wait(30.0)
        with closing(connect(tmp_path / "store.sqlite")) as store:
            return int(store.execute("SELECT count(*) FROM tasks").fetchone()[0])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(opened, range(8))) == [0] * 8
