"""The service's address and the user's token, from the job's environment or from a file.

A token is sent only to the service it was issued for, and never unencrypted over a network.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from qtide.core.errors import UsageError
from qtide.core.files import is_there, state_folder
from qtide.core.sockets import Untrusted, connected

URL, TOKEN, DEVICE, AUTHORITY = "QTIDE_URL", "QTIDE_TOKEN", "QTIDE_DEVICE", "QTIDE_CA_FILE"
REFUSED = "QTIDE_REFUSED"
"""Environment variable in which a job's prolog says why the job got no token."""
UNIX = "unix://"
"""The prefix of a Unix socket's URL; the path follows."""
SCHEMES = ("http://", "https://", UNIX)
FILE = "access.json"
"""The file in which a service tells clients on its host how to reach it."""
SITE = Path("/run/qtide")
"""The folder of the site's own service; only root can create it."""
PAUSE, PAUSE_MOST = 0.05, 2.0
"""First and longest pause, in seconds, between two attempts; it doubles each time."""
QUICK = 1.0
"""Seconds to wait when testing whether a service listens on this host."""


@dataclass(frozen=True)
class Access:
    """A service and the token for it."""

    url: str
    token: str | None = None
    standbys: tuple[str, ...] = ()
    """URLs of services that take over if the one at `url` is lost."""
    authority: str | None = None
    """A file with the certificate of a private certificate authority."""
    socket: Path | None = None
    """The Unix socket to use: there, the kernel proves who serves it."""
    state: Path | None = None
    """The service's state folder, if the service is on this host and announces it."""

    def __repr__(self) -> str:
        """Omit the token, since representations end up in logs."""
        return f"Access({self.url!r})"


def find_access(url: str | None = None, token: str | None = None) -> Access:
    """Find the service: the given one, the environment's, this user's own, or else the site's.

    A URL may be several, separated by commas: of services of which one leads and others stand by.
    Waits for a service that this user has just started. Raises UsageError at once if the service
    named in the environment refused this job a token.
    """
    known = os.environ.get(URL, "").rstrip("/")
    given = (url or known).rstrip("/")
    url, *standbys = (each.strip().rstrip("/") for each in given.split(","))
    for each in filter(None, (url, *standbys)):
        if not each.lower().startswith(SCHEMES):
            raise UsageError(f"a service's URL begins with {', '.join(SCHEMES)}; not so {each!r}")
    if given in ("", known):  # the environment's token is for the service named there
        token = token or os.environ.get(TOKEN)
        refused = os.environ.get(REFUSED)
        if refused and not token and here(url) is None:
            raise UsageError(f"this job may not use the QPU: {refused}")
    away = next((each for each in _announced() if url == each.url), None)
    if standbys:
        for each in (url, *standbys):
            _check_secret(each, token)
        return Access(url, token, tuple(standbys), os.environ.get(AUTHORITY))
    if _is_here(url):
        await_service(lambda: here(url) is not None or (url and not away and _listens_at(url)))
    # while our own service is down, anyone may have taken its port: use only its socket
    own = here(url) or away
    if own is not None:
        return Access(own.url, token, socket=own.socket, state=own.state)
    if url:
        _check_secret(url, token)
        path = Path(url.removeprefix(UNIX)) if url.startswith(UNIX) else None
        return Access(url, token, (), os.environ.get(AUTHORITY), path)
    raise UsageError(_nowhere())


def here(url: str = "") -> Access | None:
    """The listening service on this host, at `url` if given: this user's, otherwise the site's."""
    return next((each for each in _announced() if url in ("", each.url) and _listens(each)), None)


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address is a loopback one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def why_no_token(url: str) -> str:
    """Why no token was sent to a service that requires one, as the end of a sentence."""
    if refused := os.environ.get(REFUSED):
        return f"; {refused}"
    if os.environ.get(TOKEN):
        named = os.environ.get(URL) or "no service"
        return f"; {TOKEN} is set, but {URL} names {named}, so it was not sent: set {URL}={url}"
    return ""


def _check_secret(url: str, token: str | None) -> None:
    """Refuse to send a token unencrypted over a network."""
    parts = urlsplit(url)
    if token and parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"a token would be sent to {url} unencrypted; use https")


def _is_here(url: str) -> bool:
    """Whether a URL may belong to a service on this host; an empty one may."""
    return not url or url.startswith(UNIX) or is_loopback(urlsplit(url).hostname)


def _listens(access: Access) -> bool:
    """Whether a trusted process serves the socket; a killed service leaves its file behind."""
    assert access.socket is not None
    try:
        connected(access.socket, QUICK).close()
    except (OSError, Untrusted):
        return False
    return True


def _listens_at(url: str) -> bool:
    if url.startswith(UNIX):
        return _listens(Access(url, socket=Path(url.removeprefix(UNIX))))
    parts = urlsplit(url)
    place = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    try:
        with closing(socket.create_connection(place, QUICK)):
            return True
    except OSError:
        return False


def _nowhere() -> str:
    """The message that no service was found, and why."""
    start = f"set {URL} (and {TOKEN}), or start one: qtide serve --demo"
    left = next((file for file in access_files() if is_there(file)), None)
    if left is not None:
        return f"no vQPU service is running here: {left} is of an earlier one; {start}"
    return f"no vQPU service is known: {start}"


def _announced() -> Iterator[Access]:
    """The services that this user started and the site's, running or not."""
    for file in access_files():
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(file.read_text())
            state = Path(known.get("state", file.parent))
            found = Access(str(known["url"]), socket=Path(known["socket"]), state=state)
            if file.parent != SITE or _is_here(found.url):  # the site's: only a local URL
                yield found


def access_files() -> list[Path]:
    """The files in which services on this host announce themselves: this user's, the site's."""
    own = [state_folder() / name / FILE for name in ("service", "demo")]
    return [*own, SITE / FILE]


LOCAL = "http://localhost"
"""The base URL of requests over a Unix socket."""


class UnixConnection(HTTPConnection):
    """A connection to a Unix socket."""

    path: Path

    def _new_conn(self) -> socket.socket:
        limit = self.timeout if isinstance(self.timeout, int | float) else None
        try:
            return connected(self.path, limit)
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, f"{error.strerror}") from None


class UnixPool(HTTPConnectionPool):
    """Connections to one Unix socket."""

    def __init__(self, path: Path, **words: Any) -> None:
        super().__init__("localhost", **words)
        self.ConnectionCls = type("Here", (UnixConnection,), {"path": path})


PROCESSES = Path("/proc")
SERVING = "qtide-serving"
"""The process name of a listening service; the kernel keeps 15 characters."""
LIMIT = 15.0
"""Seconds that a service may take to start."""


def now_serving() -> None:
    """Mark this process as listening, so that clients stop waiting for it."""
    with suppress(OSError):  # without the file, clients wait at most `LIMIT` seconds
        (PROCESSES / "self" / "comm").write_text(SERVING)


def await_service(found: Callable[[], Any]) -> None:
    """Wait until the service is found or no service is starting any more."""
    while not found() and list(services_coming_up()):
        time.sleep(PAUSE)


def services_coming_up() -> Iterator[int]:
    """The ids of this user's processes that are starting a service."""
    for folder in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # the process has just ended
            own = folder.stat().st_uid == os.geteuid()
            if own and _serves(folder) and not _is_serving(folder) and _age(folder) < LIMIT:
                yield int(folder.name)


def _serves(folder: Path) -> bool:
    """Whether the process's command is `qtide serve`, or not known yet."""
    command = (folder / "cmdline").read_bytes()
    if not command:  # exec is under way; a kernel thread and a zombie have no executable
        return bool((folder / "exe").readlink())
    words = command.split(b"\0")
    names = [word.rpartition(b"/")[2] for word in words]
    return b"qtide" in names and b"serve" in names[names.index(b"qtide") :]


def _is_serving(folder: Path) -> bool:
    return (folder / "comm").read_text().strip() == SERVING


def _age(folder: Path) -> float:
    """The seconds since the process started."""
    words = (folder / "stat").read_text().rpartition(")")[2].split()
    began = int(words[19]) / os.sysconf("SC_CLK_TCK")
    return float((PROCESSES / "uptime").read_text().split()[0]) - began


def connections(access: Access, patience: float) -> urllib3.PoolManager | UnixPool:
    """Connections to a service, which try again for some seconds unless another stands by."""
    if access.socket is not None:
        return UnixPool(access.socket, maxsize=16, retries=_retries(patience))
    if access.standbys:
        return urllib3.PoolManager(maxsize=16, retries=False, ca_certs=access.authority)
    return urllib3.PoolManager(maxsize=16, retries=_retries(patience), ca_certs=access.authority)


def _retries(patience: float) -> urllib3.Retry:
    """As many retries as fit into `patience`; a submission's key makes repeating it safe."""
    pauses = accumulate(min(PAUSE * 2**n, PAUSE_MOST) for n in count())
    tries = sum(1 for _ in takewhile(lambda waited: waited <= patience, pauses))
    return urllib3.Retry(
        total=tries,
        backoff_factor=PAUSE,
        backoff_max=PAUSE_MOST,
        status_forcelist=[503],
        allowed_methods=None,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
