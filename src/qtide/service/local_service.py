"""A local service for a test, a benchmark or a notebook, without an operator or a QPU.

It is the real service, in its own process and with emulated devices; tests may kill it.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qtide.backends.client.client import Client
from qtide.core.errors import QtideError
from qtide.core.processes import die_with_parent
from qtide.core.sockets import free_ports
from qtide.service.store import open_database
from qtide.service.task import Caller
from qtide.service.tokens import issue

QTIDE = Path(sys.executable).with_name("qtide")
START_LIMIT = 300.0
"""Seconds that the devices have to get ready."""


class LocalService:
    """`qtide serve` on a free loopback port, configured by `head` and `devices`.

    With `bound`, it ends with the thread that started it, even if that is killed. `most_files`
    limits its open files. `within` are words before the command, which start it on another host,
    and `address` is that host's; `head` then names a certificate.
    """

    def __init__(
        self,
        folder: Path,
        devices: str,
        head: str = "",
        *,
        bound: bool = False,
        most_files: int | None = None,
        address: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        self._bound = bound
        self._within = within
        self._most_files = most_files
        self.folder = folder
        self.state = folder / "state"
        (self.port,) = free_ports(1)
        self.file = folder / "serve.toml"
        self._place = f"{address}:{self.port}"
        words = f'listen = "{self._place}"\nstate = "{self.state}"\n{head}\n'
        self.file.write_text(words + devices)
        self.url = f"{'https' if within else 'http'}://{self._place}"
        self.socket = f"unix://{self.state / 'socket'}"
        """URL of its Unix socket, where the user who started it is an operator."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, ready: bool = True) -> LocalService:
        """Start it; with `ready`, wait until every device is ready."""
        with (self.folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                # --listen overrides qtide.toml
                [*self._within, QTIDE, "serve", self.file, "--listen", self._place],
                stderr=log,
                start_new_session=True,
                preexec_fn=self._prepare if self._bound or self._most_files else None,  # noqa: PLW1509 - it only calls the kernel
            )
        if ready:
            self._await_devices()
        return self

    def watch(self, process: subprocess.Popen[bytes]) -> LocalService:
        """Take over a service started elsewhere, and wait until its devices are ready."""
        self._process = process
        self._await_devices()
        return self

    def _prepare(self) -> None:
        if self._bound:
            die_with_parent()
        if self._most_files is not None:
            limits = (self._most_files, self._most_files)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def kill(self) -> None:
        """Kill this process, and only this one, like a power cut."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Terminate it as systemd would, and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(30.0)
        finally:
            if self._process.poll() is None:
                self._process.kill()

    def wait(self, limit: float) -> int:
        """Wait until it ends by itself, and return its exit code."""
        assert self._process is not None
        return self._process.wait(limit)

    @property
    def pid(self) -> int:
        """The process id of the service itself."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> list[dict[str, Any]]:
        """The entries of its log."""
        lines = (self.folder / "serve.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def token(self, user: str = "ada", account: str = "", *, days: float = 1.0, **more: Any) -> str:
        """Issue a token, as an operator would."""
        made, write = issue(Caller(user, account, **more), 86_400 * days)
        store = open_database(self.state)
        try:
            write(store)
        finally:
            store.close()
        return made

    def client(self, user: str = "ada", account: str = "", **more: Any) -> Client:
        """A client with a new token of that user."""
        return Client(self.url, self.token(user, account, **more))

    def operator(self) -> Client:
        """An operator's client, as the user who started the service."""
        return Client(self.socket, patience=0.0)

    def workers(self) -> list[int]:
        """Process ids of its device workers."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(each) for each in found]

    def __enter__(self) -> LocalService:
        try:
            return self.start()
        except QtideError:  # nobody else would end it
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _last_words(self) -> str:
        """Return the last line of the service's log, as the log may be in a temporary folder."""
        log = self.folder / "serve.log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f": {last.removeprefix('qtide: ')}" if last else f"; see {log}"

    def _await_devices(self) -> None:
        end = time.monotonic() + START_LIMIT
        while not self._ready():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise QtideError(f"the service did not start{self._last_words()}")
            time.sleep(0.02)

    def _ready(self) -> bool:
        try:
            devices = self.operator().devices()
        except (OSError, KeyError, ValueError, QtideError):
            return False
        return all(each["state"] != "starting" for each in devices)
