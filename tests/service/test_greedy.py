"""Attacks by a user with a token, on a real service: only the attacker is refused or slowed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from qtide.backends.client.client import ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.core.world.real import RealWorld
from qtide.service.bulk import Bulk, read_form_alone
from qtide.service.local_service import LocalService
from tests.service.attacking import MB, head, line, memory, refusals, send
from tests.service.serving import wait_until

DEVICES = """
[devices.star]
kind = "star"

[devices.dev]
kind = "burst"

[devices.ours]
kind = "burst"
users = ["ada"]
accounts = ["physics"]

[devices.hidden]
kind = "star"
apis = ["iqm"]

[limits]
requests_per_user = 10
stored_bytes_per_user = 1500000
validation_seconds = 3
stalled_seconds = 0.8
"""
CIRCUIT = {
    "circuits": [
        {
            "name": "c",
            "instructions": [
                {"name": "prx", "locus": ["QB1"], "args": {"angle": 1.0, "phase": 0.0}},
                {"name": "measure", "locus": ["QB1"], "args": {"key": "m"}},
            ],
        }
    ]
}
SLOW = 'OPENQASM 3.0; include "stdgates.inc"; qubit[5] q; bit[5] c;' + "h q[0];" * 70_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("greedy"), DEVICES) as served:
        yield served


def submit(service: LocalService, user: str, form: Any, path: str = "/v1/tasks") -> Any:
    body = form if isinstance(form, bytes) else json.dumps(form).encode()
    return send(service, path, body, service.token(user))


def test_values_are_counted_before_they_are_built(service: LocalService) -> None:
    nested = b'{"device":"star","format":"iqm","payload":[' + b"[]," * (5 * MB) + b"[]]}"
    empty = b'{"circuits":[' + b"{}," * (5 * MB) + b"{}]}"
    for path, body in (("/v1/tasks", nested), ("/api/v1/jobs/star/circuit", empty)):
        code, said = submit(service, "nest", body, path)
        assert (code, "too many values" in said["message"]) == (422, True)
    assert memory(service) < 300


def test_circuits_are_counted_before_models_are_made(service: LocalService) -> None:
    many = b'{"circuits":[' + b"{}," * 20_000 + b"{}]}"
    code, said = submit(service, "nest", many, "/api/v1/jobs/star/circuit")
    assert (code, "1 to 10000 circuits" in said["message"]) == (422, True)


def test_a_large_request_is_read_by_another_process(service: LocalService) -> None:
    wide = CIRCUIT | {"circuits": CIRCUIT["circuits"] * 200}
    code, said = submit(service, "wide", wide, "/api/v1/jobs/star/circuit")
    assert code == 201, said
    data = base64.b64encode(json.dumps({"answer": "x" * 100_000, "seconds": 0.25}).encode())
    form = {"device": "dev", "format": "burst", "data": data.decode()}
    code, said = send(
        service, "/v1/tasks?wait=20", json.dumps(form).encode(), service.token("wide")
    )
    assert (code, said["state"], len(said["answer"])) == (201, "done", 100_000)
    assert said["expected_seconds"] == 0.25


@pytest.mark.parametrize("field", ["name", "device", "qubit"])
def test_half_of_a_character_is_refused(service: LocalService, field: str) -> None:
    form: dict[str, Any] = {"device": "star", "format": "iqm", "payload": CIRCUIT}
    if field == "qubit":
        form["payload"] = json.loads(json.dumps(CIRCUIT).replace("QB1", "\ud800"))
    else:
        form[field] = "\ud800"
    code, said = submit(service, "uni", form)
    assert (code, bool(said["message"])) == (422, True)
    named = json.dumps(CIRCUIT).replace('"c"', '"\\ud800"').encode()
    assert submit(service, "uni", named, "/api/v1/jobs/star/circuit")[0] == 422


@pytest.mark.parametrize("priority", [101, -101, 10**30])
def test_a_priority_has_bounds(service: LocalService, priority: int) -> None:
    form = {"device": "dev", "format": "burst", "payload": {}, "priority": priority}
    assert submit(service, "vip", form)[0] == 422


def test_requests_at_once_are_limited(service: LocalService) -> None:
    client, token = service.client("loop"), service.token("loop")
    task = client.submit(Burst(30.0), "dev")
    with ExitStack() as opened:
        for _ in range(10):
            one = opened.enter_context(line(service))
            path = f"GET /v1/tasks/{task.id}?wait=30 HTTP/1.1\r\nHost: x\r\n"
            one.sendall(f"{path}Authorization: Bearer {token}\r\n\r\n".encode())
        wait_until(lambda: send(service, "/v1/devices", b"", token, "GET")[0] == 429, 10)
        assert service.client("other").devices()
        assert refusals(service)["over_limit"] >= 1
    wait_until(lambda: send(service, "/v1/devices", b"", token, "GET")[0] == 200, 10)
    client.task(task.id).cancel()


def test_stored_bytes_are_limited_and_freed(service: LocalService) -> None:
    data = base64.b64encode(json.dumps({"answer": "x" * 250_000}).encode()).decode()
    form = {"device": "dev", "format": "burst", "data": data}
    codes = [submit(service, "hoard", form) for _ in range(8)]
    assert [code for code, _ in codes][-1] == 507
    assert "the user hoard has stored" in codes[-1][1]["message"]
    assert service.client("other").run(Burst(0.0, "fits"), "dev") == "fits"
    client = service.client("hoard")
    wait_until(lambda: all(each.state == "done" for each in client.tasks()), 20)


def test_what_is_deleted_is_counted_out(service: LocalService) -> None:
    big = CIRCUIT | {"padding": "x" * 250_000}
    for _ in range(3):
        code, said = submit(service, "tidy", big, "/api/v1/jobs/star/circuit")
        assert code == 201, said
        path, token = f"/api/v1/jobs/{said['id']}", service.token("tidy")
        wait_until(lambda: send(service, path, b"", token, "GET")[1]["status"] == "completed", 20)  # noqa: B023 - it is called at once
        assert send(service, path, b"", token, "DELETE")[0] == 204


def test_readers_that_do_not_read_are_cut_off(service: LocalService) -> None:
    data = base64.b64encode(json.dumps({"answer": "x" * 250_000}).encode()).decode()
    form = json.dumps({"device": "dev", "format": "burst", "data": data}).encode()
    _, said = send(service, "/v1/tasks?wait=20", form, service.token("deaf"))
    before = refusals(service).get("slow_reader", 0.0)
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.connect(("127.0.0.1", service.port))
        path = f"GET /v1/tasks/{said['id']} HTTP/1.1\r\nHost: x\r\n"
        one.sendall(f"{path}Authorization: Bearer {service.token('deaf')}\r\n\r\n".encode() * 20)
        wait_until(lambda: refusals(service).get("slow_reader", 0.0) > before, 20)


def test_a_device_is_only_for_those_whom_it_names(service: LocalService) -> None:
    for user, account, may in (("ada", "", True), ("bob", "physics", True), ("bob", "", False)):
        client = service.client(user, account)
        assert ("ours" in [each["name"] for each in client.devices()]) is may
        if may:
            assert client.run(Burst(0.0, 1), "ours") == 1
        else:
            with pytest.raises(ServiceFailed, match="there is no device 'ours'") as refused:
                client.submit(Burst(0.0), "ours")
            assert refused.value.status == 404
    assert "ours" in [each["name"] for each in service.operator().devices()]


def test_a_device_that_the_native_api_does_not_offer_is_not_there(service: LocalService) -> None:
    client = service.client("ada")
    assert "hidden" not in [each["name"] for each in client.devices()]
    with pytest.raises(ServiceFailed, match="there is no device 'hidden'"):
        client.device("hidden")
    code, _ = submit(service, "ada", CIRCUIT, "/api/v1/jobs/hidden/circuit")
    assert code == 201


def test_a_payload_whose_validator_was_killed_is_checked_again(service: LocalService) -> None:
    form = {"device": "star", "format": "iqm", "payload": CIRCUIT}
    assert submit(service, "kim", form)[0] == 201
    workers = set(service.workers())
    wait_until(lambda: len(service.workers()) >= len(workers), 10)
    for pid in validators(service):
        os.kill(pid, signal.SIGKILL)
    assert submit(service, "kim", form)[0] == 201


def validators(service: LocalService) -> list[int]:
    """The processes that check payloads for the star: all but the one that runs its tasks."""
    stars = [pid for pid in service.workers() if "qtide.backends.devices.worker" in command(pid)]
    return stars[4:]  # the four devices' own workers were started first


def command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123 - not a file
        return file.read()


def test_slow_payloads_delay_only_their_sender_and_only_for_a_while(service: LocalService) -> None:
    """Each takes seconds to check: another user's payload goes first, and two are enough."""
    form = {"device": "star", "format": "iqm", "payload": CIRCUIT}
    assert submit(service, "eva", form)[0] == 201
    slow = {"device": "star", "format": "qasm3", "payload": [SLOW]}
    codes: list[int] = []

    def attack() -> None:
        codes.append(submit(service, "mallory", slow)[0])

    for _ in range(2):
        threading.Thread(target=attack, daemon=True).start()
    for _ in range(3):
        assert submit(service, "eva", form)[0] == 201
    assert len(codes) < 2  # they are still being checked, one after another
    wait_until(lambda: len(codes) == 2, 60)
    code, said = submit(service, "mallory", slow)
    assert (code, said["retry_after"] > 1) == (429, True)
    assert submit(service, "eva", form)[0] == 201


def test_nothing_is_done_for_who_hung_up(service: LocalService) -> None:
    body = json.dumps({"device": "star", "format": "qasm3", "payload": [SLOW]}).encode()
    token = service.token("gone")
    for _ in range(3):
        with line(service) as one:
            one.sendall(head(len(body), token) + body)
    form = {"device": "star", "format": "iqm", "payload": CIRCUIT}
    assert submit(service, "eva", form)[0] == 201
    assert list(service.client("gone").tasks()) == []


def test_what_is_large_is_read_when_the_turn_of_its_user_has_come() -> None:
    bulk, reading, most = Bulk(RealWorld()), 0, 0
    bulk.allow([read_form_alone])

    async def read() -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0.001)
        reading -= 1
        return b'{"long": "answer"}'

    async def main() -> None:
        await asyncio.gather(*[bulk.do(read_form_alone, read, "eve") for _ in range(10)])
        await bulk.close()

    asyncio.run(main())
    assert most == 1
