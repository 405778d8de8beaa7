"""Where the service is and who we are: from the job's environment, or from a file.

A token is sent only to the service that it was given for, and never unencrypted over a network.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from qtide.errors import UsageError
from qtide.system.paths import state_folder

URL, TOKEN, DEVICE, AUTHORITY = "QTIDE_URL", "QTIDE_TOKEN", "QTIDE_DEVICE", "QTIDE_CA_FILE"
UNIX = "unix://"
"""How the URL of a Unix socket begins; its path follows."""


@dataclass(frozen=True)
class Access:
    """A service and the token for it."""

    url: str
    token: str | None = None
    authority: str | None = None
    """A file with the certificate of a private certificate authority."""
    socket: Path | None = None
    """The Unix socket to call it by: there, the kernel proves that it is the service."""

    def __repr__(self) -> str:
        """Without the token, since representations end up in logs."""
        return f"Access({self.url!r})"


def find_access(url: str | None = None, token: str | None = None) -> Access:
    """What was given, otherwise the environment's, otherwise the service that this user started."""
    known = os.environ.get(URL, "").rstrip("/")
    url = (url or known).rstrip("/")
    if url in ("", known):  # a token of the environment is for the service named there
        token = token or os.environ.get(TOKEN)
    own = next((each for each in _own() if url in ("", each.url)), None)
    if own is not None:
        return Access(own.url, token, socket=own.socket)
    if url:
        _check_secret(url, token)
        socket = Path(url.removeprefix(UNIX)) if url.startswith(UNIX) else None
        return Access(url, token, os.environ.get(AUTHORITY), socket)
    raise UsageError(
        f"no vQPU service is known: set {URL} (and {TOKEN}), or start one: qtide serve --demo"
    )


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address is this host's own."""
    return host in ("localhost", "::1") or (host or "").startswith("127.")


def _check_secret(url: str, token: str | None) -> None:
    """Refuse to send a token where anybody on the way could read it."""
    parts = urlsplit(url)
    if token and parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"a token would be sent to {url} unencrypted; use https")


def _own() -> Iterator[Access]:
    """The services that this user started."""
    for file in access_files():
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(file.read_text())
            yield Access(known["url"], socket=Path(known["socket"]))


def access_files() -> list[Path]:
    """Where a service that this user started says how to reach it."""
    return [state_folder() / name / "access.json" for name in ("service", "demo")]
