"""Where the service is and who we are: from the job's environment, or from a file.

A token is sent only to the service that it was given for, and never unencrypted over a network.
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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from qtide.core.errors import UsageError
from qtide.core.files import state_folder
from qtide.core.sockets import Untrusted, connected

URL, TOKEN, DEVICE, AUTHORITY = "QTIDE_URL", "QTIDE_TOKEN", "QTIDE_DEVICE", "QTIDE_CA_FILE"
REFUSED = "QTIDE_REFUSED"
"""By which the prolog of a job says why the job got no token."""
UNIX = "unix://"
"""How the URL of a Unix socket begins; its path follows."""
FILE = "access.json"
"""By which a service tells clients of its host how to reach it."""
SITE = Path("/run/qtide")
"""The folder of the site's own service; only root can make it."""
QUICK = 1.0
"""Seconds within which this host has to say whether somebody listens."""


@dataclass(frozen=True)
class Access:
    """A service and the token for it."""

    url: str
    token: str | None = None
    authority: str | None = None
    """A file with the certificate of a private certificate authority."""
    socket: Path | None = None
    """The Unix socket to call it by: there, the kernel proves that it is the service."""
    state: Path | None = None
    """The folder of its state, if the service is on this host and tells it."""

    def __repr__(self) -> str:
        """Without the token, since representations end up in logs."""
        return f"Access({self.url!r})"


def find_access(url: str | None = None, token: str | None = None) -> Access:
    """What was given, otherwise the environment's, otherwise the service that this user started.

    If neither is known, it is the site's; one that this user has just started is waited for. A job
    that was refused a token by the service of its environment is told so at once.
    """
    known = os.environ.get(URL, "").rstrip("/")
    url = (url or known).rstrip("/")
    if url in ("", known):  # a token of the environment is for the service named there
        token = token or os.environ.get(TOKEN)
        refused = os.environ.get(REFUSED)
        if refused and not token and here(url) is None:
            raise UsageError(f"this job may not use the QPU: {refused}")
    away = next((each for each in _announced() if url == each.url), None)
    if _is_here(url):
        await_service(lambda: here(url) is not None or (url and not away and _listens_at(url)))
    # while our own service is away, anybody may have taken its port: it is not called
    own = here(url) or away
    if own is not None:
        return Access(own.url, token, socket=own.socket, state=own.state)
    if url:
        _check_secret(url, token)
        path = Path(url.removeprefix(UNIX)) if url.startswith(UNIX) else None
        return Access(url, token, os.environ.get(AUTHORITY), path)
    raise UsageError(_nowhere())


def here(url: str = "") -> Access | None:
    """The service of this host at that URL, if one listens: this user's, otherwise the site's."""
    return next((each for each in _announced() if url in ("", each.url) and _listens(each)), None)


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address is this host's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def why_no_token(url: str) -> str:
    """Why no token was sent to a service that wants one, as the end of a sentence."""
    if refused := os.environ.get(REFUSED):
        return f"; {refused}"
    if os.environ.get(TOKEN):
        named = os.environ.get(URL) or "no service"
        return f"; {TOKEN} is set, but {URL} names {named}, so it was not sent: set {URL}={url}"
    return ""


def _check_secret(url: str, token: str | None) -> None:
    """Refuse to send a token where anybody on the way could read it."""
    parts = urlsplit(url)
    if token and parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"a token would be sent to {url} unencrypted; use https")


def _is_here(url: str) -> bool:
    """Whether a URL may be that of a service on this host; without one, it is."""
    return not url or url.startswith(UNIX) or is_loopback(urlsplit(url).hostname)


def _listens(access: Access) -> bool:
    """Whether somebody whom we trust serves its socket: a service that was killed left its file."""
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
    """Why there is no service to call."""
    start = f"set {URL} (and {TOKEN}), or start one: qtide serve --demo"
    left = next((file for file in access_files() if file.exists()), None)
    if left is not None:
        return f"no vQPU service is running here: {left} is of an earlier one; {start}"
    return f"no vQPU service is known: {start}"


def _announced() -> Iterator[Access]:
    """The services that this user started, running or not, and the site's."""
    for file in access_files():
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(file.read_text())
            state = Path(known.get("state", file.parent))
            found = Access(str(known["url"]), socket=Path(known["socket"]), state=state)
            if file.parent != SITE or _is_here(found.url):  # only for a URL that is its own
                yield found


def access_files() -> list[Path]:
    """Where services of this host say how to reach them: this user's own, then the site's."""
    own = [state_folder() / name / FILE for name in ("service", "demo")]
    return [*own, SITE / FILE]


LOCAL = "http://localhost"
"""What a request by a Unix socket names as its host."""


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
"""The short name of a service that listens; the kernel keeps 15 characters."""
LIMIT = 15.0
"""Seconds that a service may take to come up."""
PAUSE = 0.05


def now_serving() -> None:
    """This process listens from now on, so nobody waits for it any more."""
    with suppress(OSError):  # no such file: clients then wait for their limit at most
        (PROCESSES / "self" / "comm").write_text(SERVING)


def await_service(found: Callable[[], Any]) -> None:
    """Return once the service is found, or none is coming up any more, which has a limit."""
    while not found() and list(services_coming_up()):
        time.sleep(PAUSE)


def services_coming_up() -> Iterator[int]:
    """The processes of this user that will be services."""
    for folder in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            own = folder.stat().st_uid == os.geteuid()
            if own and _serves(folder) and not _is_serving(folder) and _age(folder) < LIMIT:
                yield int(folder.name)


def _serves(folder: Path) -> bool:
    """Whether its command is `qtide serve`."""
    words = (folder / "cmdline").read_bytes().split(b"\0")
    names = [word.rpartition(b"/")[2] for word in words]
    return b"qtide" in names and b"serve" in names[names.index(b"qtide") :]


def _is_serving(folder: Path) -> bool:
    return (folder / "comm").read_text().strip() == SERVING


def _age(folder: Path) -> float:
    """The seconds since a process was started."""
    words = (folder / "stat").read_text().rpartition(")")[2].split()
    began = int(words[19]) / os.sysconf("SC_CLK_TCK")
    return float((PROCESSES / "uptime").read_text().split()[0]) - began
