"""A service that only admits jobs, by real admission: what the prolog calls."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qtide.backends.clusters.slurm.prolog import served_by
from qtide.service.admission import (
    AdmissionRequest,
    Grant,
    Refused,
    SlurmAdmission,
    Unproven,
    Unreachable,
)
from tests.service.admission.site import Site

STATUS = {Unproven: 401, Refused: 403, Unreachable: 503}


class Service:
    """Records whom it has admitted, by token."""

    def __init__(
        self, admission: SlurmAdmission, devices: Sequence[str], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.grants: dict[str, Grant] = {}
        self.questions = 0
        self.busy = 0
        self.url = ""
        self.audience = served_by(os.geteuid())
        self._admission = admission
        self._devices = list(devices)
        self._loop = loop

    def request(self, path: str, body: bytes) -> AdmissionRequest:
        return AdmissionRequest("POST", path, body, frozenset({self.audience}))

    def answer(self, credential: str, request: AdmissionRequest) -> tuple[int, dict[str, Any]]:
        self.questions += 1
        if self.questions <= self.busy:
            return 503, {"message": "Slurm does not answer queries about jobs"}
        try:
            admitted = self._admission.admit(credential, request)
            grant = asyncio.run_coroutine_threadsafe(admitted, self._loop).result(timeout=30)
        except (Refused, Unreachable) as error:
            return STATUS[type(error)], {"message": str(error)}
        token = secrets.token_urlsafe(32)
        self.grants[token] = grant
        return 200, {"token": token, "expires": None, "devices": self._devices}


@contextmanager
def serving(
    site: Site, devices: Sequence[str] = (), tls: ssl.SSLContext | None = None
) -> Iterator[Service]:
    """A service on its own port."""
    with closing(SlurmAdmission(site.conf)) as admission, _loop() as loop:
        service = Service(admission, devices, loop)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        service.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A service that runs in its own thread."""
    with closing(asyncio.new_event_loop()) as loop:
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            _, _, credential = self.headers["Authorization"].partition("Munge ")
            status, answer = service.answer(credential, service.request(self.path, body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Log nothing: the test asks the service itself."""

    return Handler
