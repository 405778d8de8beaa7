"""A real service in a process of its own, for tests: started, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from qtide.broker.store import connect
from qtide.broker.task import Caller
from qtide.broker.tokens import issue
from qtide.client.client import Client

QTIDE = Path(sys.executable).with_name("qtide")
START_LIMIT = 60.0

BURSTS = """
[devices.dev]
kind = "burst"
policy = "fifo"
"""


class Service:
    """`qtide serve` with a configuration of the test's."""

    def __init__(self, folder: Path, configuration: str = BURSTS, head: str = "") -> None:
        self.folder = folder
        self.state = folder / "state"
        self.port = _free_port()
        self.file = folder / "serve.toml"
        words = f'listen = "127.0.0.1:{self.port}"\nstate = "{self.state}"\n{head}\n'
        self.file.write_text(words + configuration)
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, ready: bool = True) -> Service:
        """Start it; `ready` waits until every device is."""
        with (self.folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                [QTIDE, "serve", self.file], stderr=log, start_new_session=True
            )
        if ready:
            wait_until(lambda: all(each["state"] != "offline" for each in self._devices()))
        return self

    def kill(self) -> None:
        """As a power cut would, for this process alone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end, as systemd would."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(30.0)
        finally:
            if self._process.poll() is None:
                self._process.kill()

    @property
    def pid(self) -> int:
        """Of the service itself."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> list[dict[str, Any]]:
        """What it has logged."""
        lines = (self.folder / "serve.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def token(self, user: str = "ada", account: str = "", *, days: float = 1.0, **more: Any) -> str:
        """A token, as the operator makes it."""
        made, write = issue(Caller(user, account, **more), 86_400 * days)
        store = connect(self.state / "store.sqlite")
        try:
            write(store)
        finally:
            store.close()
        return made

    def client(self, user: str = "ada", account: str = "", **more: Any) -> Client:
        """A client of a user."""
        return Client(self.url, self.token(user, account, **more))

    def operator(self) -> Client:
        """A client of the one who started the service."""
        known = json.loads((self.state / "access.json").read_text())
        return Client(known["url"], known["token"])

    def workers(self) -> list[int]:
        """The processes of its devices."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(each) for each in found]

    def _devices(self) -> list[dict[str, Any]]:
        try:
            return self.operator().devices()
        except (OSError, KeyError, ValueError):
            return [{"state": "offline"}]


def wait_until(holds: Any, limit: float = START_LIMIT) -> None:
    """Return as soon as something holds."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come to hold within {limit:g} s")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
