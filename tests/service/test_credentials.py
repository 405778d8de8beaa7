"""Who is who: the service by its socket, its user by the kernel, a token only for its own URL."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.backends.client.access import TOKEN, URL, find_access
from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError, UsageError
from qtide.core.sockets import Untrusted, connected, trusted_uids
from qtide.service.local_service import QTIDE, LocalService
from tests.service.attacking import line, rest, status
from tests.service.serving import BURSTS, Serve

NOBODY = 65534


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("demo"), BURSTS, "anonymous = true") as served:
        yield served


def test_the_access_file_has_no_token_and_goes_with_the_service(serving: Serve) -> None:
    service = serving(BURSTS)
    access = service.state / "access.json"
    assert set(json.loads(access.read_text())) == {"url", "socket", "state"}
    assert stat.S_ISSOCK((service.state / "socket").stat().st_mode)
    assert service.operator().call("GET", "/v1/tasks", {"everybody": True})["tasks"] == []
    with pytest.raises(ServiceFailed, match="a token is needed"):  # the port proves nobody
        Client(service.url, patience=0.0).devices()
    service.stop()
    assert not access.exists()


def test_a_user_of_the_socket_is_who_the_token_says(serving: Serve) -> None:
    service = serving(BURSTS)
    ada = Client(service.socket, service.token("ada"))
    assert ada.run(Burst(0.0, "by the socket"), "dev") == "by the socket"
    with pytest.raises(ServiceFailed, match="ada is not an operator"):
        ada.call("POST", "/v1/devices/dev/drain", form={})


def test_what_is_started_here_is_called_by_its_socket_even_if_its_port_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the port while the service is away hears nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(URL, raising=False)
    place = tmp_path / "qtide" / "service"
    place.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as thief:
        url = f"http://127.0.0.1:{thief.getsockname()[1]}"
        words = {"url": url, "socket": str(place / "socket")}
        (place / "access.json").write_text(json.dumps(words))
        for named, why in ((None, "is of an earlier one"), (url, "does not answer")):
            with pytest.raises(QtideError, match=why):
                Client(named, patience=0.0).devices()
        thief.settimeout(0.1)
        with pytest.raises(TimeoutError):
            thief.accept()


def test_a_token_is_only_for_the_service_it_was_given_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, "https://qpu.example")
    monkeypatch.setenv(TOKEN, "secret")
    assert find_access().token == "secret"
    assert find_access("https://qpu.example/").token == "secret"
    assert find_access("https://elsewhere.example").token is None
    monkeypatch.delenv(URL)
    assert find_access("https://elsewhere.example").token is None
    with pytest.raises(UsageError, match="unencrypted; use https"):
        find_access("http://qpu.example", "secret")
    assert find_access("http://127.0.0.1:8037", "secret").token == "secret"


def test_a_socket_in_a_folder_of_others_proves_nothing(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(Untrusted, match="others may write"):
        trusted_uids(open_to_all)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    if os.geteuid() == 0:
        tmp_path.chmod(0o777)
        os.chown(theirs, NOBODY, NOBODY)
        with pytest.raises(Untrusted, match="nobody vouches for"):
            trusted_uids(theirs)
        tmp_path.chmod(0o755)
        assert trusted_uids(theirs) == {0, NOBODY}


def test_a_server_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    if os.geteuid():
        assert trusted_uids(tmp_path) == {0, os.geteuid()}
        return
    place = tmp_path / "socket"
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place))
            os.setuid(NOBODY)  # the kernel notes who listens
            server.listen()
            os.write(told, b"x")
            while True:
                server.accept()[0].close()
    os.read(ready, 1)
    try:
        with pytest.raises(Untrusted, match=f"served by the user {NOBODY}"):
            connected(place, 5.0)
        with pytest.raises(QtideError, match="served by the user"):
            Client(f"unix://{place}", "secret", patience=0.0).devices()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("Host: 127.0.0.1:{port}", 200),
        ("Host: localhost:{port}", 200),
        ("Host: evil.example", 403),
        ("Host: evil.example:{port}", 403),
        ("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}", 200),
        ("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example", 403),
        ("Host: 127.0.0.1:{port}\r\nOrigin: null", 403),
    ],
)
def test_a_demonstration_serves_no_web_page_of_others(
    demo: LocalService, fields: str, code: int
) -> None:
    with line(demo) as one:
        words = f"GET /v1/tasks HTTP/1.1\r\n{fields.format(port=demo.port)}\r\n"
        one.sendall(f"{words}Connection: close\r\n\r\n".encode())
        assert status(rest(one)) == code


def test_only_who_started_a_demonstration_operates_it(demo: LocalService) -> None:
    assert Client(demo.url).call("GET", "/v1/tasks", {"everybody": True})["tasks"] == []
    if os.geteuid() == 0:
        assert as_nobody(demo, "GET", "/v1/tasks") == 200
        assert as_nobody(demo, "GET", "/v1/tasks?everybody=true") == 403
        assert as_nobody(demo, "POST", "/v1/devices/dev/resume") == 403


def as_nobody(service: LocalService, method: str, path: str) -> int:
    """The status of a request by another user of this host."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(NOBODY)
        one = socket.socket()
        one.connect(("127.0.0.1", service.port))
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        one.sendall(head.encode())
        os.write(writing, b"%d" % status(rest(one)))
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reading, 10))


def test_a_peer_that_has_gone_operates_nothing(demo: LocalService) -> None:
    """A socket that is closed belongs to nobody, though the kernel then says root."""
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        head = b"POST /v1/devices/dev/drain HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}"
        for _ in range(50):
            one = socket.socket()
            one.connect(("127.0.0.1", demo.port))
            one.sendall(head % (b"127.0.0.1" if os.geteuid() == NOBODY else b"evil.example"))
            one.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert Client(demo.url).device("dev")["state"] != "maintenance"


def test_a_port_that_systemd_holds_is_never_free(tmp_path: Path) -> None:
    service = LocalService(tmp_path, BURSTS)
    with socket.create_server(("127.0.0.1", service.port)) as held:
        script = (
            f"import os; os.dup2({held.fileno()}, 3);"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1');"
            f"os.execv({str(QTIDE)!r}, ['qtide', 'serve', {str(service.file)!r}])"
        )
        with (tmp_path / "serve.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", script],
                stderr=log,
                pass_fds=[held.fileno()],
                start_new_session=True,
            )
        service.watch(process)
        assert service.client("ada").run(Burst(0.0, "held"), "dev") == "held"
        assert service.stop() == 0
        with pytest.raises(OSError, match="in use"), socket.socket() as thief:
            thief.bind(("127.0.0.1", service.port))


def test_the_lock_is_not_written_through_a_link(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (state / "lock").symlink_to(precious)
    service = LocalService(tmp_path, BURSTS)
    with pytest.raises(QtideError):
        service.start()
    assert precious.read_text() == "precious"
    assert "Traceback" not in (tmp_path / "serve.log").read_text()
    assert [each.name for each in state.iterdir()] == ["lock"]
