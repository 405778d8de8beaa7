"""How clients of the service's host find it: a file in its state's folder, and beside its socket.

It has no token: by the Unix socket, the kernel says who they are, and that this is the service.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qtide.client.access import FILE
from qtide.client.startup import now_serving
from qtide.errors import QtideError
from qtide.service.configuration import Configuration
from qtide.system.files import SECRET, write_whole

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
