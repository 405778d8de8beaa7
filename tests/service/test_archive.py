"""A store is copied whole: to a backup and back, and from SQLite to PostgreSQL and back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError
from qtide.service.archive import counts
from qtide.service.local_service import LocalService
from qtide.service.store import connect
from tests.interfaces.cli.inside import called
from tests.service.postgres import PostgresServer
from tests.service.serving import BURSTS, Serve


def store(*words: str | Path) -> tuple[int, str]:
    """Exit code and output of `qtide store`."""
    done = called("store", *words)
    if isinstance(done.exception, QtideError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def rows(*words: str | Path) -> Any:
    code, said = store(*words, "--json")
    assert code == 0, said
    return json.loads(said)["rows"]


def test_a_store_goes_to_a_backup_to_postgresql_and_back(serving: Serve, tmp_path: Path) -> None:
    service = serving(BURSTS)
    client = service.client("ada")
    done = [client.run(Burst(0.01, [n]), "dev", key=f"k{n}") for n in range(3)]
    waiting = client.submit(Burst(600.0), "dev")
    assert done == [[0], [1], [2]]
    code, said = store("backup", tmp_path / "nowhere/x", "--state", service.state)
    assert (code, "there is no folder" in said) == (2, True)
    backup = tmp_path / "backup.sqlite"
    copied = rows("backup", backup, "--state", service.state)
    assert copied["tasks"] == 4
    assert backup.stat().st_mode & 0o077 == 0
    assert store("migrate", tmp_path / "x", "--state", service.state)[0] == 1  # it runs
    service.kill()
    server = PostgresServer().start()
    try:
        assert rows("migrate", server.url, "--state", service.state)["tasks"] == 4
        code, said = store("migrate", server.url, "--state", service.state)
        assert (code, "already has" in said) == (2, True)
        for wrong in (
            "mysql://ada:secret@host/x",
            "postgresql://ada:secret@host/x",
            "postgresql://host/x?password=secret",
        ):
            code, said = store("migrate", wrong, "--state", service.state)
            assert (code, "secret" in said) == (2, False), said
        folder = tmp_path / "moved"
        folder.mkdir()
        with LocalService(folder, BURSTS, f'store = "{server.url}"') as moved:
            other = Client(moved.url, client.access.token)
            assert [other.run(Burst(0.01, [n]), "dev", key=f"k{n}") for n in range(3)] == done
            assert other.task(waiting.id).cancel().refresh(30.0).state == "cancelled"
            assert other.run(Burst(0.01, [9]), "dev") == [9]
        back = tmp_path / "back"
        assert rows("migrate", back, "--state", moved.state)["tasks"] == 5
    finally:
        server.stop()
    restored = tmp_path / "restored"
    assert rows("restore", backup, "--state", restored) == copied
    for state, number in ((back, 5), (restored, 4)):
        assert rows("check", "--state", state)["tasks"] == number


@pytest.mark.parametrize("words", [("check",), ("backup", "new.sqlite")])
def test_a_folder_without_a_store_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, said = store(*words, "--state", tmp_path / "none")
    assert (code, "there is no state of a service" in said) == (2, True)


def test_a_backup_overwrites_nothing_and_faults_are_named(tmp_path: Path) -> None:
    connect(tmp_path / "store.sqlite").close()
    (tmp_path / "there").write_text("mine")
    assert store("backup", tmp_path / "there", "--state", tmp_path)[0] == 2
    assert (tmp_path / "there").read_text() == "mine"
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as broken:
        broken.execute("INSERT INTO occupations VALUES ('t', 1, -1, 0, 'd', 'u', 'a', NULL, '')")
        broken.commit()
    code, said = store("check", "--state", tmp_path)
    assert (code, "1 occupations that end before they begin" in said) == (1, True)
    with closing(connect(tmp_path / "store.sqlite")) as found:
        assert counts(found)["occupations"] == 1
