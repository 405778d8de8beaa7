"""Running the service: one process, one loop, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from qtide.backends.client.access import FILE, now_serving
from qtide.core.errors import PhaseError, QtideError
from qtide.core.files import SECRET, Locked, lock, write_whole
from qtide.core.sockets import opened_folder
from qtide.core.version import __version__
from qtide.service.apis import APIS
from qtide.service.apis.api import Api, refuser
from qtide.service.apis.request_gate import Authenticator, Gate, Watch, describe_tokens
from qtide.service.configuration import Configuration, Revision
from qtide.service.connection import Connections, limited, sweep
from qtide.service.limits import Limits
from qtide.service.service import Service


def application(service: Service) -> FastAPI:
    """The application for a service, which it opens and closes."""
    settings = service.configuration
    access = Authenticator(service.register, anonymous=settings.anonymous)
    made = (APIS.load(name)(service, access) for name in APIS.names())
    apis = [api for api in made if api is not None]
    app = FastAPI(
        title="qtide", version=__version__, lifespan=_lifespan(service, apis), redoc_url=None
    )
    for api in apis:
        app.include_router(api.router)
    refuse = refuser(apis, service.metrics.refused)
    for kind in (QtideError, PhaseError, RequestValidationError, HTTPException, sqlite3.Error):
        app.add_exception_handler(kind, refuse)
    app.add_middleware(
        Gate,
        access=access,
        limits=settings.limits,
        most_bytes=settings.most_bytes,
        refuse=refuse,
        public=[path for api in apis for path in api.public],
        watch=_watching(service),
    )
    _add_public_routes(app, service, access)
    describe_tokens(app)
    return app


def _watching(service: Service) -> Watch:
    """How the gate learns of other limits."""

    def watch(adopt: Callable[[Limits, int], None]) -> None:
        service.on_reconfigured.append(lambda new: adopt(new.limits, new.most_bytes))

    return watch


def _lifespan(service: Service, apis: Sequence[Api]) -> Any:
    """The service is open from the first to the last request."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await service.open()
        try:
            async with AsyncExitStack() as lives:
                for api in apis:
                    await lives.enter_async_context(api.life())
                yield
        finally:
            await service.close()

    return life


def _add_public_routes(app: FastAPI, service: Service, access: Authenticator) -> None:
    @app.get("/health", tags=["operation"], responses={503: {"model": dict[str, str]}})
    async def health(response: Response) -> dict[str, str]:
        """The state of each device; 503 if nothing can be stored, with the reason in `store`."""
        states = {name: device.state for name, device in service.devices.items()}
        if (trouble := service.storage.trouble()) is not None:
            response.status_code = 503
            states["store"] = trouble
        return states

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        """Metrics for Prometheus; accounts are named to operators only."""
        accounts = access.operates(request.scope)
        return PlainTextResponse(service.metrics_text(accounts=accounts))


PUBLIC = 0o644
NOTIFY_LIMIT = 1.0
"""Seconds within which systemd has to take a message."""


@contextmanager
def announced(configuration: Configuration, url: str) -> Iterator[None]:
    """Tell where the service is, for as long as the block runs."""
    place = configuration.unix_socket.absolute()
    words = {"url": url, "socket": str(place), "state": str(configuration.folder.absolute())}
    text = f"{json.dumps(words)}\n".encode()
    places = {place.parent / FILE: PUBLIC, configuration.folder.absolute() / FILE: SECRET}
    try:
        for file, mode in places.items():
            _write(file, text, mode)
        now_serving()
        yield
    finally:
        for file in places:
            file.unlink(missing_ok=True)


def tell_systemd(word: str) -> None:
    """Tell systemd, if it has started us as a service of `Type=notify`, how far we are."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.settimeout(NOTIFY_LIMIT)
        line.connect(f"\0{place[1:]}" if place.startswith("@") else place)
        line.send(word.encode())


def _write(file: Path, text: bytes, mode: int) -> None:
    try:
        write_whole(file, text, mode)
    except OSError as error:
        raise QtideError(f"{file} cannot be written: {error.strerror}") from None


BACKLOG = 1024
FIRST_INHERITED = 3


def listeners(configuration: Configuration) -> list[socket.socket]:
    """The sockets to serve on, the port first."""
    inherited = _inherited()
    found = [each for each in inherited if each.family != socket.AF_UNIX]
    found = found or [_port(configuration)]
    unix = [each for each in inherited if each.family == socket.AF_UNIX]
    try:
        return [*found, *(unix or [_unix(configuration.unix_socket)])]
    except BaseException:
        for each in found:
            each.close()
        raise


def _inherited() -> list[socket.socket]:
    """What systemd opened for this process."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    number = int(os.environ.get("LISTEN_FDS", "0"))
    found = [socket.socket(fileno=FIRST_INHERITED + each) for each in range(number)]
    for each in found:
        each.setblocking(False)
        os.set_inheritable(each.fileno(), False)
    return found


def _port(configuration: Configuration) -> socket.socket:
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
    listener.listen(BACKLOG)
    return listener


def _unix(path: Path) -> socket.socket:
    """A socket in a folder that only we write to; the one that an earlier service left goes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened_folder(path.parent) as folder:  # paths of sockets may only be short
            place = folder / path.name
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(place.lstat().st_mode):
                    place.unlink()
            listener.bind(str(place))
            place.chmod(0o666)  # whoever reaches it still needs a token
    except OSError as error:
        listener.close()
        raise QtideError(f"cannot listen on {path}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener


log = logging.getLogger(__name__)

Reread = Callable[[], Configuration] | None
"""Reads the configuration again; None if there is no file of it."""
SWITCH = 0.0005
"""Seconds for which a thread that reads the store may hold up the event loop."""
GARBAGE = 50_000
"""Allocations before the garbage collector looks for cycles."""
STOP_LIMIT = 10
"""Seconds within which open requests have to end."""
HANDSHAKE_LIMIT = 5.0
"""Seconds within which a client has to agree on TLS."""
RESERVED_FILES = 128
"""Files that no connection may take: for the store, for devices, for Slurm's commands."""


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
    """Ends delayed responses as soon as it is told to stop."""

    def __init__(
        self, config: uvicorn.Config, service: Service, connections: Connections, reread: Reread
    ) -> None:
        super().__init__(config)
        self._service = service
        self._connections = connections
        self._reread = reread
        self._reloads: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the port, with TLS if there is a certificate, and on the Unix socket."""
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self._sweep = loop.create_task(sweep(self._connections))
        for each in sockets or ():
            if each.family == socket.AF_UNIX:
                made = await loop.create_unix_server(self._protocol, sock=each, backlog=BACKLOG)
            else:
                limit = HANDSHAKE_LIMIT if self.config.ssl else None
                made = await loop.create_server(
                    self._protocol,
                    sock=each,
                    ssl=self.config.ssl,
                    backlog=BACKLOG,
                    ssl_handshake_timeout=limit,
                )
            self.servers.append(made)
        tell_systemd("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is being answered."""
        self._sweep.cancel()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop after a signal."""
        self._service.let_go()
        super().handle_exit(sig, frame)

    def _hang_up(self) -> None:
        """Read the configuration again; a demonstration has none, and ends with its terminal."""
        if self._reread is None:
            self.handle_exit(signal.SIGHUP, None)
            return
        task = asyncio.get_running_loop().create_task(self._reload(self._reread))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, reread: Callable[[], Configuration]) -> None:
        """Go on by the configuration as it is now; if it is wrong, by the old one."""
        try:
            new = await asyncio.to_thread(reread)
            revision = Revision(self._service.configuration, new)
            self._adopt(revision.configuration)
        except (QtideError, OSError) as error:
            log.error("configuration not reloaded", extra={"why": str(error)})  # noqa: TRY400 - the reason is enough
            return
        words = {"changed": revision.changed, "after_restart": revision.after_restart}
        log.info("configuration reloaded", extra=words)

    def _adopt(self, new: Configuration) -> None:
        if self.config.ssl is not None and new.certificate is not None:
            self.config.ssl.load_cert_chain(new.certificate, new.key)
        self._connections.adopt(*_most_connections(new))
        self._service.reconfigure(new)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(
            config=self.config,  # type: ignore[call-arg]  # as uvicorn itself calls it
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        return made


def serve(configuration: Configuration, reread: Reread = None) -> None:
    """Serve until a signal comes; at a SIGHUP, read the configuration again."""
    _log()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    _allow_many_files()
    with _leaving_nothing(configuration.folder), ExitStack() as opened:
        opened.enter_context(_lock_state(configuration.folder))
        sockets = listeners(configuration)
        url = _url(configuration, sockets[0])
        opened.enter_context(announced(configuration, url))
        service = Service.on_this_host(configuration)
        held = opened.pop_all()
    log.info("serving", extra={"url": url})
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises it again once it has stopped
        signal.signal(number, lambda *_: sys.exit(0))
    with held:
        _run(configuration, service, sockets, reread)


def _run(
    configuration: Configuration, service: Service, sockets: list[socket.socket], reread: Reread
) -> None:
    connections = Connections(*_most_connections(configuration), service.metrics.refused)
    settings = uvicorn.Config(
        application(service),
        http=limited(lambda: service.configuration, connections),  # type: ignore[arg-type]  # it is only called
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_LIMIT,
        ssl_certfile=configuration.certificate,
        ssl_keyfile=configuration.key,
    )
    sys.setswitchinterval(SWITCH)
    gc.freeze()  # what was imported stays: the collector need not look through it again
    gc.set_threshold(GARBAGE)
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
        runner.run(Server(settings, service, connections, reread).serve(sockets))


def _allow_many_files() -> None:
    """Allow more open files, as every waiting client needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _most_connections(configuration: Configuration) -> tuple[int, int]:
    """How many a peer may have, and how many all of them."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = configuration.limits
    return limits.connections_per_peer, max(1, min(limits.connections, files - RESERVED_FILES))


@contextmanager
def _leaving_nothing(folder: Path) -> Iterator[None]:
    """If the start is refused, remove the files that it has made."""
    before = set(folder.iterdir()) if folder.is_dir() else None
    try:
        yield
    except BaseException:
        if before is None:
            shutil.rmtree(folder, ignore_errors=True)
        for each in set(folder.iterdir()) - before if before is not None else ():
            shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)
        raise


def _lock_state(folder: Path) -> IO[bytes]:
    """Let no other service use the same state; the lock ends with the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.fdopen(os.open(folder / "lock", how, SECRET), "rb+")
    except OSError as error:
        raise QtideError(f"the state in {folder} cannot be used: {error.strerror}") from None
    try:
        lock(opened.fileno())
    except Locked:
        opened.close()
        raise QtideError(f"another service uses the state in {folder}") from None
    return opened


def _url(configuration: Configuration, listener: socket.socket) -> str:
    scheme = "https" if configuration.certificate else "http"
    host = f"[{configuration.host}]" if ":" in configuration.host else configuration.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _log() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
