"""Attacks on a service, for hostile.py: each does its worst until it is told to stop.

They need no library but urllib3, and run in a process of their own.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import urllib3

MB = 2**20
FAILURES = (OSError, urllib3.exceptions.HTTPError)


@dataclass
class Target:
    """The service under attack, and what the attacker knows."""

    port: int
    token: str
    stop: Any
    """Set when the attack is to end."""
    accepted: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, method: str, path: str, body: Any = None, token: str | None = "") -> int:
        """The status of one request; 0 if the connection broke."""
        head = {"Content-Type": "application/json"}
        if token is not None:
            head["Authorization"] = f"Bearer {token or self.token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            answer = POOL.request(method, url, body=data, headers=head, timeout=30, retries=False)
        except FAILURES:
            return 0
        if answer.status == 201:
            self.accepted.append(answer.json()["id"])
        self.answers.append(answer.status)
        return answer.status

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """A bare connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as opened:
            yield opened

    def head(self, length: int, path: str = "/v1/tasks", method: str = "POST") -> bytes:
        """The head of a request with the attacker's token."""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()


POOL = urllib3.PoolManager(maxsize=64, num_pools=4)
Attack = Callable[[Target], None]


def many(threads: int, work: Attack) -> Attack:
    """The same again and again, in several threads."""

    def attack(target: Target) -> None:
        def loop() -> None:
            while not target.stop.is_set():
                with suppress(*FAILURES):
                    work(target)

        workers = [threading.Thread(target=loop, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)

    return attack


NESTED = b'{"device":"star","format":"iqm","payload":[' + b"[]," * (5 * MB) + b"[]]}"
EMPTY = b'{"circuits":[' + b"{}," * (5 * MB) + b"{}]}"
SLOW = 'OPENQASM 3.0; include "stdgates.inc"; qubit[5] q; bit[5] c;' + "h q[0];" * 70_000


def large_answer(target: Target, size: int) -> None:
    """Let a task of the attacker have an answer of that many MB, if it has none yet."""
    with target.lock:
        if not target.accepted:
            data = base64.b64encode(json.dumps({"answer": "x" * size * MB}).encode()).decode()
            form = {"device": "other", "format": "burst", "data": data}
            target.call("POST", "/v1/tasks?wait=20", form)


def long_queue(target: Target) -> None:
    """Let a thousand tasks of the attacker wait."""
    with target.lock:
        while len(target.accepted) < 1000 and not target.stop.is_set():
            form = {"device": "drained", "format": "burst", "payload": {"seconds": 1.0}}
            target.call("POST", "/v1/tasks", form)


def nested_without_token(target: Target) -> None:
    """16 MB of nested lists, from nobody."""
    target.call("POST", "/v1/tasks", NESTED, token=None)


def half_a_body(target: Target) -> None:
    """200 bodies of which half arrives, from nobody; then from a user."""
    opened = []
    for number in range(200):
        with suppress(OSError):
            one = socket.create_connection(("127.0.0.1", target.port), timeout=5)
            head = target.head(15 * MB)
            one.sendall(head if number % 2 else head.replace(target.token.encode(), b"nobody"))
            one.settimeout(0.05)
            with suppress(OSError):
                one.sendall(b" " * 8 * MB)
            opened.append(one)
        if target.stop.is_set():
            break
    target.stop.wait(1.0)
    for one in opened:
        one.close()


def endless_head(target: Target) -> None:
    """A head that never ends, from nobody."""
    with target.connection() as one:
        one.sendall(b"GET / HTTP/1.1\r\n")
        while not target.stop.is_set():
            one.sendall(b"x-%d: %s\r\n" % (time.monotonic_ns(), b"y" * 4000))


def idle_connections(target: Target) -> None:
    """As many connections as there can be, from nobody."""
    opened = []
    for _ in range(3000):
        with suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", target.port), timeout=5))
        if target.stop.is_set():
            break
    target.stop.wait(2.0)
    for one in opened:
        one.close()


def requests_without_token(target: Target) -> None:
    """Requests that are refused, as fast as they can be sent."""
    target.call("GET", "/v1/tasks", token=None)


def nested(target: Target) -> None:
    """16 MB of nested lists, from a user."""
    target.call("POST", "/v1/tasks", NESTED)


def empty_circuits(target: Target) -> None:
    """Five million empty circuits, by IQM's API."""
    target.call("POST", "/api/v1/jobs/star/circuit", EMPTY)


def slow_payloads(target: Target) -> None:
    """Payloads that take long to check."""
    target.call("POST", "/v1/tasks", {"device": "star", "format": "qasm3", "payload": [SLOW]})


def hang_ups(target: Target) -> None:
    """The same, but nobody waits for the answer."""
    body = json.dumps({"device": "star", "format": "qasm3", "payload": [SLOW]}).encode()
    with target.connection() as one:
        one.sendall(target.head(len(body)) + body)
        target.stop.wait(0.3)


def readers_that_do_not_read(target: Target) -> None:
    """Large answers that are never read."""
    large_answer(target, 10)
    if target.accepted:
        with target.connection() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(target.head(0, f"/v1/tasks/{target.accepted[0]}", "GET"))
            target.stop.wait(5.0)


def small_requests(target: Target) -> None:
    """Small requests, as fast as they can be sent."""
    target.call("GET", "/v1/devices")


def submissions(target: Target) -> None:
    """Small tasks for another device, as fast as they are taken."""
    form = {"device": "other", "format": "burst", "payload": {"seconds": 0.0}}
    target.call("POST", "/v1/tasks", form)


def large_tasks(target: Target) -> None:
    """Tasks of 8 MB, until the disk is full."""
    data = base64.b64encode(json.dumps({"answer": str(uuid.uuid4()) * 200_000}).encode())
    form = {"device": "other", "format": "burst", "data": data.decode()}
    target.call("POST", "/v1/tasks", form)


def looking_at_the_queue(target: Target) -> None:
    """A list of a thousand of the attacker's own waiting tasks, again and again."""
    long_queue(target)
    target.call("GET", "/v1/tasks?limit=1000")


def endless_bursts(target: Target) -> None:
    """Bursts of any length, on the same device."""
    form = {"device": "star", "format": "burst", "payload": {"seconds": 1e300}}
    target.call("POST", "/v1/tasks", form)
    target.stop.wait(0.2)


def promised_stream(target: Target) -> None:
    """A stream of tasks with a promised start, on the same device."""
    form = {"device": "star", "format": "burst", "payload": {"seconds": 0.01}, "max_wait": 0.1}
    target.call("POST", "/v1/tasks?wait=1", form)


def sums_over_the_store(target: Target) -> None:
    """The attacker's whole usage, and what every task was charged, again and again."""
    target.call("GET", "/v1/usage?by=job&by=device")
    target.call("GET", "/v1/charges?since=0&until=90000000000")


def retries_of_large_tasks(target: Target) -> None:
    """Small requests that make the service read 8 MB each."""
    large_answer(target, 8)
    if target.accepted:
        target.call("POST", f"/v1/tasks/{target.accepted[0]}/retry")


def new_event_streams(target: Target) -> None:
    """Streams of changes that begin anew, each with everything, while many tasks wait."""
    long_queue(target)
    with target.connection() as one:
        one.sendall(target.head(0, "/v1/events?after=unknown-1", "GET"))
        one.recv(65536)


ATTACKS: dict[str, Attack] = {
    "16 MB of nested lists, no token": many(4, nested_without_token),
    "bodies that arrive in part": many(1, half_a_body),
    "heads without end, no token": many(8, endless_head),
    "3,000 idle connections, no token": many(1, idle_connections),
    "requests without a token": many(32, requests_without_token),
    "16 MB of nested lists": many(4, nested),
    "5 million empty circuits": many(4, empty_circuits),
    "payloads that are slow to check": many(8, slow_payloads),
    "the same, hanging up": many(8, hang_ups),
    "readers that do not read": many(60, readers_that_do_not_read),
    "small requests": many(64, small_requests),
    "submissions": many(64, submissions),
    "tasks of 8 MB": many(4, large_tasks),
    "looking at the queue": many(4, looking_at_the_queue),
    "bursts without end": many(2, endless_bursts),
    "a stream of promised tasks": many(4, promised_stream),
    "sums over a large store": many(64, sums_over_the_store),
    "retries of tasks of 8 MB": many(32, retries_of_large_tasks),
    "new streams of changes": many(32, new_event_streams),
}
