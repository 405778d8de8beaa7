"""Attacks by clients without a token, on a real service: others are served, and little is held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from tests.service.attacking import MB, head, line, memory, refusals, rest, send, status
from tests.service.serving import BURSTS

LIMITS = """
[limits]
connections = 40
connections_per_peer = 20
header_seconds = 0.6
body_seconds = 2.0
stalled_seconds = 0.8
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("strangers"), BURSTS + LIMITS) as served:
        yield served


@pytest.fixture(autouse=True)
def honest(service: LocalService) -> Iterator[None]:
    """Whatever was done, another user is served, and the service is small."""
    client = service.client("honest")
    assert client.run(Burst(0.0, "before"), "dev") == "before"
    yield
    assert client.run(Burst(0.0, "after"), "dev") == "after"
    assert memory(service) < 200
    assert [row for row in service.log() if row["level"] == "error"] == []


def test_nothing_is_parsed_before_the_token(service: LocalService) -> None:
    body = b"[" + b"[]," * (5 * MB) + b"[]]"
    with line(service) as one:
        one.sendall(head(len(body)))
        one.sendall(body[:1000])
        assert one.recv(100).startswith(b"HTTP/1.1 401")
        with pytest.raises(OSError, match=r"reset|pipe"):  # it does not even take the rest
            for at in range(0, len(body), MB):
                one.sendall(body[at : at + MB])
    assert refusals(service)["not_allowed"] >= 1


@pytest.mark.parametrize("path", ["/v1/tasks", "/api/v1/jobs/star/circuit", "/v1/nowhere", "/"])
def test_no_path_reads_a_body_without_a_token(service: LocalService, path: str) -> None:
    with line(service) as one:
        one.sendall(head(10 * MB, path=path))
        assert one.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_public_paths_take_no_large_body(service: LocalService, path: str) -> None:
    with line(service) as one:
        one.sendall(head(10 * MB, path=path))
        assert one.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "bytes_of_a_head",
    [
        b"x: " + b"y" * MB,
        b"".join(b"x-%d: y\r\n" % number for number in range(5000)),
        b"x: " + b"y" * 40_000 + b"\r\n\r\n",
    ],
    ids=["one long field", "many fields", "a complete head"],
)
def test_a_head_that_is_too_long_is_refused(service: LocalService, bytes_of_a_head: bytes) -> None:
    with line(service) as one:
        try:
            one.sendall(b"GET /health HTTP/1.1\r\n" + bytes_of_a_head)
            answer = rest(one)
        except ConnectionError:
            answer = b""
    assert status(answer) in (431, 0)
    assert refusals(service)["head_too_long"] >= 1


def test_trailers_without_end_are_cut_off(service: LocalService) -> None:
    token = service.token("mallory")
    with line(service) as one:
        one.sendall(
            f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n".encode()
        )
        with pytest.raises(OSError, match=r"reset|pipe"):
            for number in range(100_000):
                one.sendall(b"x-%d: y\r\n" % number * 100)


@pytest.mark.parametrize("begun", [b"", b"GET / HTT", b"\r\n\r\n"], ids=["idle", "half", "blank"])
def test_a_head_that_does_not_come_is_not_waited_for(service: LocalService, begun: bytes) -> None:
    with line(service) as one:
        one.sendall(begun)
        assert status(rest(one)) == 408
    assert refusals(service)["too_slow"] >= 1


def test_a_body_that_does_not_come_is_not_waited_for(service: LocalService) -> None:
    with line(service) as one:
        one.sendall(head(1000, service.token("mallory")) + b"{")
        assert status(rest(one)) == 408


def test_a_body_that_drips_is_not_waited_for(service: LocalService) -> None:
    with line(service) as one:
        one.sendall(head(1000, service.token("mallory")))
        one.settimeout(0.3)
        answer = b""
        for _ in range(20):
            try:
                one.sendall(b"x")
                answer += one.recv(1000)
                break
            except TimeoutError:
                continue
    assert status(answer) == 408


def test_idle_connections_keep_nobody_out(service: LocalService) -> None:
    with ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(line(service))
        assert service.client("ada").run(Burst(0.0, "in"), "dev") == "in"
    assert refusals(service)["gave_way"] >= 50


def test_halves_of_bodies_hold_little(service: LocalService) -> None:
    token = service.token("mallory")
    with ExitStack() as opened:
        for _ in range(15):
            one = opened.enter_context(line(service))
            one.settimeout(0.05)
            one.sendall(head(15 * MB, token))
            try:
                for _ in range(8):
                    one.sendall(b" " * MB)
            except (TimeoutError, ConnectionError):
                pass
        assert service.client("ada").run(Burst(0.0, "in"), "dev") == "in"


def test_what_is_no_http_is_refused(service: LocalService) -> None:
    with line(service) as one:
        one.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert status(rest(one)) == 400


def test_many_requests_at_once_on_one_connection_are_answered(service: LocalService) -> None:
    with line(service) as one:
        asked = b"GET /health HTTP/1.1\r\nHost: x\r\n"
        one.sendall((asked + b"\r\n") * 49 + asked + b"Connection: close\r\n\r\n")
        assert rest(one).count(b"HTTP/1.1 200") == 50


def test_requests_sent_without_reading_the_answers_fill_no_memory(service: LocalService) -> None:
    with line(service) as opened:
        opened.sendall(b"GET /health HTTP/1.1\r\n\r\n" * 1000)
        answered = part = opened.recv(65536)
        while part and b"read the answers" not in answered:
            part = opened.recv(65536)
            answered += part
    assert b" 429 " in answered


def test_a_refusal_says_what_to_do_in_the_format_of_its_api(service: LocalService) -> None:
    code, said = send(service, "/v1/tasks", b"", method="GET")
    assert (code, "Authorization: Bearer" in said["message"]) == (401, True)
    code, said = send(service, "/api/v1/about", b"", method="GET")
    assert (code, said["error_code"]) == (401, "not_allowed")
