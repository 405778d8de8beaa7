"""Where the service is and who we are: from the job's environment, or from a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qtide.errors import UsageError
from qtide.system.paths import state_folder

URL, TOKEN, DEVICE, AUTHORITY = "QTIDE_URL", "QTIDE_TOKEN", "QTIDE_DEVICE", "QTIDE_CA_FILE"


@dataclass(frozen=True)
class Access:
    """A service and the token for it."""

    url: str
    token: str | None = None
    authority: str | None = None
    """A file with the certificate of a private certificate authority."""

    def __repr__(self) -> str:
        """Without the token, since representations end up in logs."""
        return f"Access({self.url!r})"


def find_access(url: str | None = None, token: str | None = None) -> Access:
    """What was given, otherwise the environment's, otherwise the service that this user started."""
    url = (url or os.environ.get(URL, "")).rstrip("/")
    token = token or os.environ.get(TOKEN)
    own = next((each for each in _own() if url in ("", each.url)), None)
    if url or own:
        found = own or Access(url)
        return Access(found.url, token or found.token, os.environ.get(AUTHORITY))
    raise UsageError(
        f"no vQPU service is known: set {URL} (and {TOKEN}), or start one: qtide serve --demo"
    )


def _own() -> Iterator[Access]:
    """The services that this user started."""
    for file in access_files():
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(file.read_text())
            yield Access(known["url"], known["token"])


def access_files() -> list[Path]:
    """Where a service that this user started says how to reach it."""
    return [state_folder() / name / "access.json" for name in ("service", "demo")]
