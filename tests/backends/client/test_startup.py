"""Clients find a service that is coming up, and are not misled by one that is gone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qtide.backends.client import access
from qtide.backends.client.access import URL, find_access, here
from qtide.backends.client.client import Client
from qtide.backends.clusters.slurm import prolog
from qtide.core.errors import UsageError
from qtide.core.sockets import free_ports
from qtide.service.local_service import QTIDE

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(URL, raising=False)
    monkeypatch.setattr(access, "SITE", tmp_path / "site")
    monkeypatch.setattr(access, "PROCESSES", tmp_path / "proc")  # other tests start services, too
    return tmp_path / "qtide" / "service"


@contextmanager
def just_started(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A service that was started this very moment, and where it will be."""
    (port,) = free_ports(1)
    file = folder / "serve.toml"
    file.write_text(f'listen = "127.0.0.1:{port}"\n[devices.dev]\nkind = "burst"\n')
    process = subprocess.Popen([QTIDE, "serve", file], stderr=subprocess.DEVNULL)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_service_that_is_coming_up_is_waited_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PROCESSES", Path("/proc"))
    monkeypatch.setattr(access, "LIMIT", 60.0)  # the machine may be busy
    with just_started(tmp_path) as (process, url):
        (device,) = Client().devices()
        assert device["name"] == "dev" and device["state"] in ("starting", "idle")
        assert Client().default_device("burst") == "dev"
        assert find_access(url).socket == home / "socket"
        assert find_access().state == home
        process.kill()
        process.wait()
        monkeypatch.setattr(access, "PROCESSES", tmp_path / "proc")
        with pytest.raises(UsageError, match=rf"{home}/access.json is of an earlier one"):
            find_access()


def test_a_process_whose_command_is_not_known_yet_may_be_a_service(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "7"
    folder.mkdir(parents=True)
    for name, text in (("cmdline", ""), ("comm", "pytest"), ("stat", f"7 (x) S {'0 ' * 18}900")):
        (folder / name).write_text(text)
    (tmp_path / "proc" / "uptime").write_text("9.5 1.0")
    assert list(access.services_coming_up()) == []  # a zombie
    (folder / "exe").symlink_to("/usr/bin/python3")
    assert list(access.services_coming_up()) == [7]


def test_where_nothing_is_coming_up_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PAUSE", None)  # no argument of sleep
    with pytest.raises(UsageError, match=r"no vQPU service is known: .* qtide serve --demo"):
        find_access()


def test_the_service_of_the_site_is_found_but_only_at_its_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(access, "_listens", lambda _: True)
    words = {"url": "http://127.0.0.1:8037", "socket": str(site / "socket"), "state": "/state"}
    (site / "access.json").write_text(json.dumps(words))
    assert find_access().socket == site / "socket"
    assert find_access("http://127.0.0.1:8037", "token").socket == site / "socket"
    (site / "access.json").write_text(json.dumps(words | {"url": "https://elsewhere.example"}))
    assert here("https://elsewhere.example") is None


def test_a_service_that_listens_is_no_longer_coming_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = tmp_path / "proc"
    processes.mkdir()
    (processes / "uptime").write_text("1000.50 1900.00\n")
    ticks = os.sysconf("SC_CLK_TCK")
    serves = b"python\0/opt/bin/qtide\0serve\0--demo\0"
    for number, (command, name, began) in enumerate(
        [
            (serves, "qtide", 998),
            (serves, access.SERVING, 998),
            (serves, "of a version that did not say", 900),
            (b"python\0/opt/bin/qtide\0devices\0", "qtide", 999),
            (b"bash\0-c\0qtide serve --demo & qtide devices\0", "bash", 997),
        ]
    ):
        folder = processes / str(number)
        folder.mkdir()
        words = ["R", *"0" * 18, str(began * ticks), "0"]
        (folder / "stat").write_text(f"{number} ({name} )) {' '.join(words)}")
        (folder / "cmdline").write_bytes(command)
        (folder / "comm").write_text(f"{name}\n")
    assert list(access.services_coming_up()) == [0]
    monkeypatch.setattr(os, "geteuid", lambda: processes.stat().st_uid + 1)
    assert list(access.services_coming_up()) == []


def test_a_job_that_was_refused_hears_why_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "await_service", lambda _: pytest.fail("it waited"))
    monkeypatch.setenv(access.REFUSED, "job 7 holds no slot of a QPU")
    with pytest.raises(UsageError, match="this job may not use the QPU: job 7 holds no slot"):
        Client()
    monkeypatch.setenv(URL, "https://qpu.example")
    with pytest.raises(UsageError, match="job 7 holds no slot"):
        Client()
    monkeypatch.setenv(access.TOKEN, "of another way")
    assert Client().access.token == "of another way"


def test_a_token_for_another_service_is_not_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert access.why_no_token("https://a") == ""
    monkeypatch.setenv(access.TOKEN, "secret")
    sentence = "; QTIDE_TOKEN is set, but QTIDE_URL names no service, so it was not sent: "
    assert access.why_no_token("https://a") == sentence + "set QTIDE_URL=https://a"
    monkeypatch.setenv(URL, "https://b")
    assert "QTIDE_URL names https://b, so" in access.why_no_token("https://a")


@pytest.mark.parametrize("host", ["127.evil.example", "127.0.0.1.evil.example", "127.", "", None])
def test_a_name_that_looks_like_the_loopback_is_a_stranger(host: str | None) -> None:
    assert not access.is_loopback(host)
    assert not prolog.is_loopback(host or "")
    assert access.is_loopback("127.0.0.2") and prolog.is_loopback("127.0.0.2")


def test_no_token_is_sent_unencrypted_to_such_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unencrypted; use https"):
        find_access("http://127.evil.example:8037", "token")
