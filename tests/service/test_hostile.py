"""Untrusted requests: each gets a status below 500, and other users are not affected."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService

GATE = {"name": "prx", "locus": ["QB1"], "args": {"angle": 1.0, "phase": 0.0}}
MEASURE = {"name": "measure", "locus": ["QB1"], "args": {"key": "m"}}


def circuit(*instructions: dict[str, Any]) -> dict[str, Any]:
    return {"circuits": [{"name": "c", "instructions": [*instructions, MEASURE]}]}


HOSTILE = {
    "10,000 qubits": ("qasm3", ["OPENQASM 3.0; qubit[10000] q; bit[1] c; c[0] = measure q[0];"]),
    "a NaN angle": ("iqm", circuit(GATE | {"args": {"angle": float("nan"), "phase": 0.0}})),
    "an infinite angle": ("iqm", circuit(GATE | {"args": {"angle": 1e999, "phase": 0.0}})),
    "an unknown gate": ("iqm", circuit(GATE | {"name": "warp"})),
    "an unknown qubit": ("iqm", circuit(GATE | {"locus": ["QB99"]})),
    "no circuit": ("iqm", {"circuits": []}),
    "qubits that are not connected": ("iqm", circuit({"name": "cz", "locus": ["QB1", "QB2"]})),
    "no OpenQASM": ("qasm3", ["hello"]),
    "a file of the server": ("qasm3", ['include "/etc/passwd";']),
    "endless loops": ("qasm3", ["OPENQASM 3.0; qubit q; while (true) { x q; }"]),
    "another type": ("iqm", 17),
    "a wrong device": ("bqm", {"linear": []}),
    "a negative burst": ("burst", {"seconds": -1}),
    "an endless burst": ("burst", {"seconds": float("inf")}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_payload_is_refused_with_a_sentence(service: LocalService, what: str) -> None:
    kind, payload = HOSTILE[what]
    status, said = send(service, {"device": "star", "format": kind, "payload": payload})
    assert status in (400, 422), said
    assert len(said["message"]) > 10
    assert "Traceback" not in said["message"]
    assert service.client("witness").run(Burst(0.0, "fine"), "star") == "fine"


@pytest.mark.parametrize(
    "form",
    [
        {"device": "star"},
        {"device": "nowhere", "format": "burst", "payload": {}},
        {"device": "star", "format": "burst", "payload": {}, "shots": 0},
        {"device": "star", "format": "burst", "payload": {}, "shots": 10**12},
        {"device": "star", "format": "burst", "payload": {}, "max_wait": float("nan")},
        {"device": "star", "format": "qpy", "data": "no base64!"},
        {"device": "star", "format": "qpy", "data": "QUJD"},
        {"device": "star", "format": "burst", "payload": {}, "seed": -1},
        {"device": "star", "format": "burst", "payload": {}, "unknown": 1},
        {"device": "star", "format": "burst", "payload": {}, "\ud800": 1},
    ],
)
def test_a_malformed_request_is_refused_with_a_sentence(
    service: LocalService, form: dict[str, Any]
) -> None:
    status, said = send(service, form)
    assert 400 <= status < 500
    assert said["message"]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"", b"null"])
def test_deep_or_broken_json_is_refused(service: LocalService, body: bytes) -> None:
    status, _ = send_bytes(service, body)
    assert 400 <= status < 500
    assert service.client("witness").run(Burst(0.0, "fine"), "star") == "fine"


def test_a_huge_body_is_refused_before_it_is_received(service: LocalService) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.putrequest("POST", "/v1/tasks")
    connection.putheader("Authorization", f"Bearer {service.token('mallory')}")
    connection.putheader("Content-Length", str(2**30))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_a_huge_body_without_a_length_is_cut_off(service: LocalService) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 2**20

    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    head = {"Authorization": f"Bearer {service.token('mallory')}"}
    try:
        connection.request("POST", "/v1/tasks", chunks(), head, encode_chunked=True)
        status = connection.getresponse().status
    except ConnectionError:  # it hung up while we were still sending
        status = 413
    assert status == 413
    assert service.client("witness").run(Burst(0.0, "fine"), "star") == "fine"


def test_an_incomplete_request_delays_no_other(service: LocalService) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as half:
        half.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert service.client("witness").run(Burst(0.0, "fine"), "star") == "fine"


def send(service: Any, form: Any) -> tuple[int, dict[str, Any]]:
    return send_bytes(service, json.dumps(form).encode())


def send_bytes(service: Any, body: bytes) -> tuple[int, dict[str, Any]]:
    head = {"Authorization": f"Bearer {service.token('mallory')}"}
    head["Content-Type"] = "application/json"
    answer = urllib3.request(
        "POST", f"{service.url}/v1/tasks", body=body, headers=head, timeout=60, retries=False
    )
    return answer.status, answer.json()
