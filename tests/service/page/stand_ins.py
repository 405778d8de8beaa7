"""What a page may find in place of its service: a proxy, and a service that stands by."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/node/login1/8037"


@contextmanager
def prefix_proxy(port: int) -> Iterator[str]:
    """Serve the server at `port` below `PREFIX`, as Open OnDemand does; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # each answer ends with its connection

        def _forward(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            length = int(self.headers.get("Content-Length", 0))
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with closing(line), suppress(OSError):
                fields = {name: value for name, value in self.headers.items() if name != "Host"}
                path = self.path.removeprefix(PREFIX)
                line.request(self.command, path, self.rfile.read(length), fields)
                answer = line.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.end_headers()
                while piece := answer.read1(65_536):
                    self.wfile.write(piece)
                    self.wfile.flush()

        do_GET = do_POST = _forward  # noqa: N815 - the base class looks for these

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with _serving(Handler, 0) as chosen:
        yield f"http://127.0.0.1:{chosen}{PREFIX}/"


@contextmanager
def standing_by(port: int, leader: str) -> Iterator[None]:
    """Refuse all requests at a port, because another service leads."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            words = {"error": "standby", "message": "another one leads", "leader": leader}
            self.wfile.write(json.dumps(words).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with _serving(Handler, port):
        yield


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler], port: int) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
