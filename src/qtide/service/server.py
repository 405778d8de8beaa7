"""The server process: one event loop that runs the service until a signal ends it."""

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
import ssl
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import IO, Any

import uvloop
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from starlette.exceptions import HTTPException

from qtide.backends.client.access import FILE, now_serving
from qtide.core.errors import PhaseError, QtideError
from qtide.core.files import SECRET, Locked, lock, write_whole
from qtide.core.sockets import opened_folder
from qtide.core.version import __version__
from qtide.core.world.real import RealWorld
from qtide.core.world.world import BackgroundTasks
from qtide.service.acceptor import Acceptor, Connections
from qtide.service.apis import APIS
from qtide.service.apis.api import Api, refuser
from qtide.service.apis.request_gate import CALLER, Authenticator, Gate, describe_tokens
from qtide.service.configuration import Configuration, Revision
from qtide.service.connection import Connection, Serving
from qtide.service.identities import people_of
from qtide.service.monitoring import JsonLines
from qtide.service.service import Service
from qtide.service.store import StoreFailed
from qtide.service.task import Caller


def application(service: Service) -> tuple[FastAPI, list[Api]]:
    """Make the web application of a service; also return its APIs, whose `life` to enter."""
    settings = service.configuration
    # browsers send a host's cookies to all its ports, so each service has a name of its own
    place = f"{settings.folder.absolute()} {settings.listen}"
    cookie = f"qtide_{sha256(place.encode()).hexdigest()[:12]}"
    people = people_of(settings.identities, settings.slurm.conf if settings.slurm else None)
    access = Authenticator(
        service.register, anonymous=settings.anonymous, cookie=cookie, people=people
    )
    made = (APIS.load(name)(service, access) for name in APIS.names())
    apis = [api for api in made if api is not None]
    app = FastAPI(title="qtide", version=__version__, redoc_url=None, docs_url=None)
    for api in apis:
        app.include_router(api.router)
        service.bulk.allow(api.bulk)

    def told(request: Request, status: int, name: str, why: str) -> None:
        service.metrics.refused(status, name)
        caller: Caller | None = request.scope.get(CALLER)
        if status in LIMITED:
            service.audit.refused("limit exceeded", caller.user if caller else "unknown", why)

    refuse = refuser(apis, told)
    for kind in (QtideError, PhaseError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuse)
    app.add_middleware(
        Gate,
        access=access,
        limits=settings.limits,
        most_bytes=settings.most_bytes,
        refuse=refuse,
        public=[path for api in apis for path in api.public],
        watch=lambda adopt: service.on_reconfigured.append(
            lambda new: adopt(new.limits, new.most_bytes)
        ),
    )
    _add_public_routes(app, service, access)
    describe_tokens(app)
    return app, apis


def _add_public_routes(app: FastAPI, service: Service, access: Authenticator) -> None:
    writing: dict[bool, asyncio.Task[bytes]] = {}

    @app.get("/health", tags=["operation"], responses={503: {"model": dict[str, str]}})
    async def health(response: Response) -> dict[str, str]:
        """The state of each device; 503 if nothing can be stored, with the reason in `store`."""
        states = {name: device.state for name, device in service.devices.items()}
        if (trouble := service.storage.trouble()) is not None:
            response.status_code = 503
            states["store"] = trouble
        return states

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """The API's description, as a page that needs neither scripts nor the internet."""
        return HTMLResponse(_page(app.openapi()))

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        """Metrics for Prometheus; only operators see them by account."""
        accounts = await access.operates(request.scope)
        if accounts not in writing:  # whoever asks meanwhile gets the same, as it needs no token
            task = writing[accounts] = asyncio.create_task(service.metrics_text(accounts=accounts))
            task.add_done_callback(lambda _: writing.pop(accounts))
        return PlainTextResponse(await asyncio.shield(writing[accounts]))


def _page(description: dict[str, Any]) -> str:
    """Render the OpenAPI description as HTML: each route, its parameters and responses."""
    routes = [route for methods in description["paths"].values() for route in methods.values()]
    shared = set.intersection(*(set(route["responses"]) for route in routes))
    parts = [f"<h1>qtide {description['info']['version']}</h1>", INTRODUCTION]
    parts.append(f"<p>Any may be refused, and its body says why: {', '.join(sorted(shared))}.</p>")
    for path, methods in sorted(description["paths"].items()):
        for method, route in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(route.get('description', ''))}</p>")
            parts += [
                f"<p><code>{escape(each['name'])}</code> ({each['in']}) "
                f"{escape(each.get('description', ''))}</p>"
                for each in route.get("parameters", ())
            ]
            if "requestBody" in route:
                body = json.dumps(route["requestBody"]["content"], indent=1)
                parts.append(f"<details><summary>Body</summary><pre>{escape(body)}</pre></details>")
            own = [each for each in route["responses"] if each not in shared]
            parts.append(f"<p>Answers: {', '.join(own)}</p>")
    forms = json.dumps(description.get("components", {}).get("schemas", {}), indent=1)
    parts.append(
        f"<h2>Forms</h2><details><summary>All</summary><pre>{escape(forms)}</pre></details>"
    )
    return HEAD + "".join(parts)


HEAD = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>qtide: the service's API</title>"
    "<meta name=viewport content='width=device-width'>"
    "<style>:root{color-scheme:light dark}"
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem;"
    "overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 0}p{margin:.3rem 0}"
    "pre{overflow-x:auto;overflow-wrap:normal}</style>"
)
INTRODUCTION = (
    "<p>The requests that the service answers. Send a token with each: "
    "<code>Authorization: Bearer TOKEN</code>. "
    'For programs: <a href="openapi.json">openapi.json</a></p>'
)
PUBLIC = 0o644
NOTIFY_LIMIT = 1.0
"""Seconds that systemd has to take a message."""


@contextmanager
def announced(configuration: Configuration, url: str) -> Iterator[None]:
    """Publish the addresses of the service in files while the block runs."""
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
    """Notify systemd, if it started this process as a service of `Type=notify`."""
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
    """Open the sockets to serve on, or take systemd's; the port comes first."""
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
    """The sockets that systemd opened for this process."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    number = int(os.environ.get("LISTEN_FDS", "0"))
    found = [socket.socket(fileno=FIRST_INHERITED + each) for each in range(number)]
    for each in found:
        each.setblocking(False)
        os.set_inheritable(each.fileno(), False)
    return found


def _port(configuration: Configuration) -> socket.socket:
    """Bind the port early, so that early clients wait and a second service fails at once."""
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
    """Bind the Unix socket in a folder that only we write to, replacing an earlier service's."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened_folder(path.parent) as folder:  # socket paths have to be short
            place = folder / path.name
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(place.lstat().st_mode):
                    place.unlink()
            listener.bind(str(place))
            place.chmod(0o666)  # clients still need a token
    except OSError as error:
        listener.close()
        raise QtideError(f"cannot listen on {path}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener


log = logging.getLogger(__name__)

Reread = Callable[[], Configuration] | None
"""Reads the configuration again; None if it has no file."""
SWITCH = 0.0005
"""Maximum seconds that a store reader thread may block the event loop."""
GARBAGE = 50_000
"""Allocations after which the garbage collector looks for cycles."""
STOP_LIMIT = 10
"""Seconds that open requests have to end when the server stops."""
STOP_POLL = 0.01
STANDBY_POLL = 0.1
"""Seconds between two attempts of a standby to take the lead."""
RESERVED_FILES = 128
"""File descriptors kept for the store, the devices and Slurm's commands."""


LIMITED = (413, 429, 507)
"""Statuses of requests beyond a limit."""


class Server:
    """Answers requests on its sockets until a signal ends it."""

    def __init__(
        self, service: Service, sockets: list[socket.socket], url: str, reread: Reread = None
    ) -> None:
        self._service = service
        self._sockets = sockets
        self._reread = reread
        self._app, self._apis = application(service)
        self._serving = Serving(self._refuse, service.configuration)
        """What answers requests: the application, as soon as this service leads."""
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._url = service.configuration.public_url or url
        self._tls = _tls(service.configuration)
        limits = _most_connections(service.configuration)
        self._connections = Connections(*limits, service.metrics.refused)
        self._background = BackgroundTasks(RealWorld())
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Open the service, answer requests until a signal arrives, and close the service."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        async with AsyncExitStack() as opened:
            accepting = BackgroundTasks(RealWorld())
            if not self._leads():
                self._accept(accepting)
                tell_systemd("READY=1")
                with suppress(StoreFailed):  # otherwise once it leads
                    await self._service.book_left_behind(self._service.store.add)
                await self._stand_by()
            if self._stopped.is_set():
                await accepting.cancel()
                self._service.store.close()
                return
            await self._service.open()
            opened.push_async_callback(self._service.close)
            for api in self._apis:
                await opened.enter_async_context(api.life())
            opened.push_async_callback(self._background.cancel)
            self._serving.app = self._app
            if not accepting:
                self._accept(accepting)
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
            tell_systemd("READY=1")
            await self._stopped.wait()
            if self._service.store.deadline is not None:
                await self._service.run_dry()  # so that a standby can take over within a second
            self._service.let_go()
            await accepting.cancel()
            await self._finish()

    def _accept(self, accepting: BackgroundTasks) -> None:
        for each in self._sockets:
            connect = partial(Connection, self._serving, self._connections)
            acceptor = Acceptor(each, connect, self._connections, self._tls)
            accepting.start(acceptor.run())

    def _leads(self) -> bool:
        """Take the lead if no other service has it; False also while the database is away."""
        with suppress(StoreFailed):
            return self._service.store.take_lead(self._name, self._url)
        return False

    async def _stand_by(self) -> None:
        """Refuse requests, with the address of the service that leads, until this one does."""
        log.info("standing by")
        while not self._stopped.is_set() and not self._leads():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), STANDBY_POLL)
        log.info("leading", extra={"url": self._url})

    async def _refuse(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer every request while another service leads."""
        url = ""
        with suppress(StoreFailed):
            _, url = self._service.store.leader()
        if url and (scope["method"], scope["path"]) == ("GET", "/"):  # a person, in a browser
            await RedirectResponse(f"{url.rstrip('/')}/")(scope, receive, send)
            return
        where = f" at {url}" if url else ""
        words = {
            "error": "standby",
            "message": f"this service stands by; another one leads{where}",
            "leader": url or None,
        }
        answer = JSONResponse(words, 503, {"Retry-After": "1"})
        await answer(scope, receive, send)

    async def _finish(self) -> None:
        """Wait for current requests to finish, up to `STOP_LIMIT`."""
        end = asyncio.get_running_loop().time() + STOP_LIMIT
        for each in self._connections:
            each.shut_down()
        while len(self._connections) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(STOP_POLL)
        for listener in self._sockets:
            listener.close()

    def _stop(self) -> None:
        """Stop after a signal."""
        self._stopped.set()

    def _hang_up(self) -> None:
        """Reload the configuration; a demonstration has no file, and ends with its terminal."""
        if self._reread is None:
            self._stop()
        else:
            self._background.start(self._reload(self._reread))

    async def _reload(self, reread: Callable[[], Configuration]) -> None:
        """Switch to the configuration as it is now; if it is wrong, keep the old one."""
        try:
            new = await asyncio.to_thread(reread)
            revision = Revision(self._service.configuration, new)
            settings = revision.configuration
            if self._tls is not None and settings.certificate is not None:
                self._tls.load_cert_chain(settings.certificate, settings.key)
            self._connections.adopt(*_most_connections(settings))
            self._service.reconfigure(settings)
            self._serving.settings = settings
        except (QtideError, OSError) as error:
            log.error("configuration not reloaded", extra={"why": str(error)})  # noqa: TRY400 - the reason is enough
            self._service.audit.record(
                "configuration not reloaded", "a signal (SIGHUP)", str(error)
            )
            return
        words = {"changed": revision.changed, "after_restart": revision.after_restart}
        log.info("configuration reloaded", extra=words)
        self._service.audit.record("configuration reloaded", "a signal (SIGHUP)", "", **words)


def _tls(configuration: Configuration) -> ssl.SSLContext | None:
    if configuration.certificate is None or configuration.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(configuration.certificate, configuration.key)
    return context


def serve(configuration: Configuration, reread: Reread = None) -> None:
    """Serve until a signal arrives; reload the configuration on SIGHUP."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    # every waiting client needs an open file
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with _leaving_nothing(configuration.folder), ExitStack() as opened:
        opened.enter_context(_lock_state(configuration.folder))
        sockets = listeners(configuration)
        url = _url(configuration, sockets[0])
        opened.enter_context(announced(configuration, url))
        service = Service.on_this_host(configuration)
        held = opened.pop_all()
    log.info("serving", extra={"url": url})
    sys.setswitchinterval(SWITCH)
    gc.freeze()  # imported objects stay: the collector can skip them
    gc.set_threshold(GARBAGE)

    async def run() -> None:
        await Server(service, sockets, url, reread).run()

    with held, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _most_connections(configuration: Configuration) -> tuple[int, int]:
    """Maximum connections of one peer, and of all peers together."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = configuration.limits
    return limits.connections_per_peer, max(1, min(limits.connections, files - RESERVED_FILES))


@contextmanager
def _leaving_nothing(folder: Path) -> Iterator[None]:
    """Remove the files that a failed start has created."""
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
    """Lock the state folder against other services; the lock ends with the process."""
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
