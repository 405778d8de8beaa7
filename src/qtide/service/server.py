"""Running the service: one process, one loop, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import uvicorn

from qtide.errors import QtideError
from qtide.service import tokens
from qtide.service.application import application
from qtide.service.configuration import Configuration
from qtide.service.service import Service
from qtide.service.task import Caller
from qtide.system.files import SECRET, Locked, lock, write_whole

GARBAGE = 50_000
"""Allocations before the garbage collector looks for cycles."""
STOP_LIMIT = 10
"""Seconds within which open requests have to end."""
OPERATOR_TOKEN_LASTS = 365 * 86_400.0


KNOWN = {*vars(logging.makeLogRecord({})), "message", "color_message"}
"""Attributes of every record; all others were added by the caller of the logger."""


class JsonLines(logging.Formatter):
    """A machine-readable log: one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's message and the fields that were added to it."""
        extra = {name: value for name, value in vars(record).items() if name not in KNOWN}
        words = {"time": round(record.created, 3), "level": record.levelname.lower()}
        words |= {"event": record.getMessage()} | extra
        if record.exc_info:
            words["traceback"] = self.formatException(record.exc_info)
        return json.dumps(words, default=str)


class Server(uvicorn.Server):
    """Ends delayed responses as soon as it is told to stop, and prints where it listens."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop after a signal."""
        self._service.let_go()
        super().handle_exit(sig, frame)


def serve(configuration: Configuration) -> None:
    """Serve until a signal comes."""
    _log()
    _allow_many_connections()
    locked = _lock_state(configuration.folder)
    service = Service.on_this_host(configuration)
    listener = _listen(configuration)
    scheme = "https" if configuration.certificate else "http"
    host = f"[{configuration.host}]" if ":" in configuration.host else configuration.host
    url = f"{scheme}://{host}:{listener.getsockname()[1]}"
    settings = uvicorn.Config(
        application(service),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_LIMIT,
        ssl_certfile=configuration.certificate,
        ssl_keyfile=configuration.key,
    )
    _write_access(configuration, service, url)
    logging.getLogger(__name__).info("serving", extra={"url": url})
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises it again once it has stopped
        signal.signal(number, lambda *_: sys.exit(0))
    gc.freeze()  # what was imported stays: the collector need not look through it again
    gc.set_threshold(GARBAGE)
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
        runner.run(Server(settings, service).serve([listener]))
    locked.close()


def _allow_many_connections() -> None:
    """Allow more open files: every waiting client needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _lock_state(folder: Path) -> IO[bytes]:
    """Let no other service use the same state; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    opened = (folder / "lock").open("wb")
    try:
        lock(opened.fileno())
    except Locked:
        opened.close()
        raise QtideError(f"another service uses the state in {folder}") from None
    return opened


def _listen(configuration: Configuration) -> socket.socket:
    """Bind the socket first: early clients wait, and a second service fails at once."""
    family = socket.AF_INET6 if ":" in configuration.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on a socket whose protocol is TCP
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((configuration.host, configuration.port))
    except OSError as error:
        listener.close()
        raise QtideError(f"cannot listen on {configuration.listen}: {error.strerror}") from None
    listener.listen(1024)
    return listener


def _write_access(configuration: Configuration, service: Service, url: str) -> None:
    """A file that lets commands of the user who started the service call it as an operator."""
    file = configuration.folder / "access.json"
    with suppress(OSError, ValueError, KeyError):
        known = json.loads(file.read_text())
        if tokens.is_valid(service.store, known["token"]):
            _write_secret(file, known | {"url": url})
            return
    operator = Caller("operator", operator=True)
    token, write = tokens.issue(operator, OPERATOR_TOKEN_LASTS, "of the service itself")
    asyncio.run(service.store.write(write))
    _write_secret(file, {"url": url, "token": token})


def _write_secret(file: Path, words: dict[str, Any]) -> None:
    write_whole(file, f"{json.dumps(words)}\n".encode(), SECRET)


def _log() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
