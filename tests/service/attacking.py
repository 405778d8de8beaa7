"""What tests of attacks share: bare connections, and a look at the service's memory."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import urllib3

from qtide.service.local_service import LocalService

MB = 2**20
LIMIT = 30.0


@contextmanager
def line(service: LocalService) -> Iterator[socket.socket]:
    """A bare connection."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=LIMIT) as opened:
        yield opened


def rest(opened: socket.socket) -> bytes:
    """All that the service sends until it closes the connection."""
    parts = []
    with suppress(ConnectionError):
        while part := opened.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status(answer: bytes) -> int:
    """The status of an answer."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def head(length: int, token: str | None = None, path: str = "/v1/tasks") -> bytes:
    """The head of a request that submits something."""
    proof = f"Authorization: Bearer {token}\r\n" if token else ""
    words = f"POST {path} HTTP/1.1\r\nHost: x\r\n{proof}Content-Length: {length}\r\n\r\n"
    return words.encode()


def send(
    service: LocalService, path: str, body: bytes, token: str | None = None, method: str = "POST"
) -> tuple[int, dict[str, Any]]:
    """The answer to one request."""
    proof = {"Authorization": f"Bearer {token}"} if token else {}
    answer = urllib3.request(
        method, f"{service.url}{path}", body=body, headers=proof, timeout=LIMIT, retries=False
    )
    return answer.status, json.loads(answer.data) if answer.data else {}


def memory(service: LocalService) -> float:
    """The most memory that the service itself has had, in MB."""
    for row in Path(f"/proc/{service.pid}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) / 1024
    raise AssertionError("the service is gone")


def refusals(service: LocalService) -> dict[str, float]:
    """How often the service refused what."""
    text = urllib3.request("GET", f"{service.url}/metrics").data.decode()
    rows = [row for row in text.splitlines() if row.startswith("qtide_refusals_total{")]
    return {row.split('"')[1]: float(row.rpartition(" ")[2]) for row in rows}
