"""How a service tells where it is: to clients of its host, and to systemd."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from qtide.core.errors import QtideError
from qtide.service import server
from qtide.service.configuration import Configuration
from qtide.service.server import announced, tell_systemd


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the tests is no service."""
    monkeypatch.setattr(server, "now_serving", lambda: None)


def configured(state: Path, place: Path) -> Configuration:
    words = {"state": state, "socket": place, "devices": {"dev": {"kind": "burst"}}}
    return Configuration.model_validate(words)


def test_clients_of_the_host_read_where_it_is_while_it_is_there(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    state.mkdir()
    run.mkdir()
    with announced(configured(state, run / "socket"), "http://127.0.0.1:1"):
        for folder, mode in ((run, 0o644), (state, 0o600)):
            file = folder / "access.json"
            assert file.stat().st_mode & 0o777 == mode
            assert json.loads(file.read_text()) == {
                "url": "http://127.0.0.1:1",
                "socket": str(run / "socket"),
                "state": str(state),
            }
    assert list(tmp_path.rglob("access.json")) == []


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    nowhere = configured(tmp_path, tmp_path / "missing" / "socket")
    with (
        pytest.raises(QtideError, match=r"access.json cannot be written: No such file"),
        announced(nowhere, "http://127.0.0.1:1"),
    ):
        pytest.fail("it was announced")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"@{tmp_path}/notify" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(10.0)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        tell_systemd("READY=1")
        assert manager.recv(100) == b"READY=1"
    tell_systemd("READY=1")  # nobody listens: that is no error
    monkeypatch.delenv("NOTIFY_SOCKET")
    tell_systemd("READY=1")
