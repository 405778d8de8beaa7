"""One rule for every route: who, may they, how large; only then is anything parsed."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import urllib3
from fastapi.routing import APIRoute

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import Configuration, DeviceSetup
from qtide.service.local_service import LocalService
from qtide.service.server import application
from qtide.service.service import Service
from qtide.service.virtual_service import SimulatedDevice, SimulatedStore
from tests.service.attacking import MB, line, memory, refusals, send
from tests.service.serving import BURSTS, Serve, wait_until


def test_no_route_has_its_body_parsed_before_its_rights_are_checked(tmp_path: Path) -> None:
    """FastAPI parses the body of a route that declares one, before the route is called."""
    world = VirtualWorld()
    configuration = Configuration(state=tmp_path, devices={"dev": DeviceSetup(kind="burst")})
    service = Service(configuration, world, SimulatedStore(world), SimulatedDevice(world))
    app, apis = application(service)
    routes = [
        each
        for found in (app.routes, *(api.router.routes for api in apis))
        for each in found
        if isinstance(each, APIRoute)
    ]
    assert {"/v1/tasks", "/v1/devices/{name}/drain"} <= {each.path for each in routes}
    assert [each.path for each in routes if each.body_field is not None] == []


def test_a_large_body_to_an_operators_route_is_refused_unread(service: LocalService) -> None:
    body = b'{"reason":[' + b"[]," * (5 * MB - 10) + b"[]]}"
    before = memory(service)
    for _ in range(4):
        code, said = send(service, "/v1/devices/dev/drain", body, service.token("mallory"))
        assert (code, said["error"]) == (403, "forbidden")
    assert memory(service) < before + 100
    token = service.token("olga", operator=True)
    assert send(service, "/v1/devices/dev/drain", body, token)[0] == 413
    assert service.client("ada").run(Burst(0.0, 1), "dev") == 1


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, made = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {made} -days 1 -subj /CN=here"
    subprocess.run(
        ["openssl", *words.split(), "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return made, key


def test_connections_that_never_start_tls_keep_nobody_out(
    serving: Serve, certificate: tuple[Path, Path]
) -> None:
    made, key = certificate
    limits = "[limits]\nconnections = 40\nconnections_per_peer = 30\n"
    service = serving(BURSTS + limits, f'certificate = "{made}"\nkey = "{key}"')
    trusted = ssl.create_default_context(cafile=str(made))
    place = ("127.0.0.1", service.port)
    with ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection(place)) for _ in range(100)]
        with (
            socket.create_connection(place) as plain,
            trusted.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert secured.recv(100).startswith(b"HTTP/1.1 200")
        assert service.operator().devices()
        files = len(list(Path(f"/proc/{service.pid}/fd").iterdir()))
        assert files < 100
        idle[-1].settimeout(20)
        with suppress(ConnectionError):
            assert idle[-1].recv(1) == b"", "the handshake has a limit"


def test_requests_that_one_user_holds_keep_nobody_else_out(serving: Serve) -> None:
    service = serving(BURSTS + "[limits]\nconnections_per_peer = 20\nconnections = 60\n")
    client, token = service.client("hog"), service.token("hog")
    task = client.submit(Burst(60.0), "dev")
    asked = f"GET /v1/tasks/{task.id}?wait=60 HTTP/1.1\r\nHost: x\r\n"
    with ExitStack() as opened:
        held = [opened.enter_context(line(service)) for _ in range(20)]
        for one in held:
            one.sendall(f"{asked}Authorization: Bearer {token}\r\n\r\n".encode())
        time.sleep(0.5)  # until they are held
        assert service.client("ada").devices()
        assert client.task(task.id).state == "running", "the user itself is served as well"
        held[0].settimeout(10)
        assert b'"state": "running"' in held[0].recv(4096), "the oldest was answered early"
    assert refusals(service)["gave_way"] >= 1
    client.task(task.id).cancel()


def test_a_task_can_be_forgotten_and_is_gone_then(service: LocalService) -> None:
    client = service.client("amn")
    task = client.submit(Burst(0.0, "secret"), "dev")
    task.result(30)
    token = service.token("amn")
    assert send(service, f"/v1/tasks/{task.id}", b"", token, "DELETE")[0] == 204
    code, said = send(service, f"/v1/tasks/{task.id}", b"", token, "GET")
    assert (code, said["error"], "it was done" in said["message"]) == (410, "gone", True)
    assert send(service, f"/v1/tasks/{task.id}", b"", service.token("eve"), "DELETE")[0] == 404


def test_the_longest_answers_can_be_fetched_by_every_api(serving: Serve) -> None:
    # a tenth of the usual bytes in flight, for answers of a tenth of the size
    limits = "[limits]\nbytes_in_flight_per_user = 400_000\nbytes_in_flight = 1_000_000\n"
    service = serving(f'[devices.star]\nkind = "star"\n{limits}')
    qubits = [f"QB{number}" for number in range(1, 6)]
    gates = [
        {"name": "prx", "locus": [each], "args": {"angle": 0.25, "phase": 0.0}} for each in qubits
    ]
    measured = {"name": "measure", "locus": qubits, "args": {"key": "m"}}
    circuits = [{"name": "c", "instructions": [*gates, measured]}] * 6
    body = json.dumps({"circuits": circuits, "shots": 100_000}).encode()
    token = service.token("wide")
    code, said = send(service, "/api/v1/jobs/star/circuit", body, token)
    assert code == 201, said
    place = f"/api/v1/jobs/{said['id']}"
    wait_until(lambda: send(service, place, b"", token, "GET")[1]["status"] == "completed", 120)
    artifacts = {}
    for name in ("measurement_counts", "measurements"):
        answer = urllib3.request(
            "GET",
            f"{service.url}{place}/artifacts/{name}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=120,
        )
        assert answer.status == 200, answer.data
        artifacts[name] = json.loads(answer.data)
    counts, rows = artifacts["measurement_counts"], artifacts["measurements"]
    assert (len(counts), sum(counts[0]["counts"].values())) == (6, 100_000)
    assert (len(rows), len(rows[5]["m"]), len(rows[0]["m"][0])) == (6, 100_000, 5)
    task = Client(service.url, token).task(said["id"])
    assert len(task.result(120)) == 6


def test_what_is_not_known_runs_once_within_the_quota(serving: Serve) -> None:
    device = '[devices.gate]\nkind = "gate"\nqubits = 20\n[quotas.user]\nqpu_seconds = 300\n'
    client = serving(device).client("ada")
    for qubits in (2, 2, 12, 18, 20):
        assert client.run(circuit(qubits), "gate", shots=10), qubits
    with pytest.raises(ServiceFailed, match="300 s per day"):
        client.submit(Burst(301.0), "gate")


def circuit(qubits: int) -> object:
    """A chain of entangled qubits."""
    from qiskit import QuantumCircuit

    made = QuantumCircuit(qubits)
    made.h(0)
    for each in range(qubits - 1):
        made.cx(each, each + 1)
    made.measure_all()
    return made
