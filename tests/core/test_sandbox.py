"""A confined process: it computes and answers by its pipe, and can do nothing else."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from qtide.core.sandbox import ALLOWED, allow_reading_only, confine


def confined(attempt: Callable[[], object]) -> str:
    """What becomes of an attempt in a confined process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            confine(2**28)
            attempt()
            said = "done"
        except BaseException as error:
            said = type(error).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        return told.read()


@pytest.mark.parametrize(
    ("attempt", "outcome"),
    [
        (lambda: sum(range(1000)), "done"),
        (socket.socket, "PermissionError"),
        (lambda: os.execv("/bin/true", ["true"]), "PermissionError"),
        (lambda: os.kill(os.getppid(), 0), "PermissionError"),
        (lambda: bytearray(2**30), "MemoryError"),
    ],
    ids=["computing", "network", "programs", "signals", "memory"],
)
def test_a_confined_process_can_only_compute(attempt: Callable[[], object], outcome: str) -> None:
    assert confined(attempt) == outcome


def test_a_confined_process_writes_and_removes_no_file(tmp_path: Path) -> None:
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.write_text("kept")
    assert confined(kept.unlink) == "PermissionError"
    assert confined(lambda: made.write_text("made")) == "PermissionError"
    assert kept.read_text() == "kept"


def bare(name: str, *words: int) -> None:
    """A bare system call, which raises OSError if it fails."""
    numbers = {"tgkill": (234, 131), "prlimit64": (302, 261)}
    common = {"pidfd_open": 434, "pidfd_send_signal": 424, "pidfd_getfd": 438}
    number = common.get(name) or numbers[name][platform.machine() == "aarch64"]
    if ctypes.CDLL(None, use_errno=True).syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), name)


ESCAPES: dict[str, Callable[[Path], object]] = {
    "read a secret": lambda secret: secret.read_text(),
    "truncate a file": lambda secret: os.truncate(secret, 0),
    "link a file": lambda secret: os.link(secret, secret.with_name("link")),
    "change a mode": lambda secret: secret.chmod(0o644),
    "read the parent's memory": lambda _: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
    "write the parent's memory": lambda _: os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR),
    "read the parent's environment": lambda _: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "fork": lambda _: os.fork(),
    "signal a thread": lambda _: bare("tgkill", os.getppid(), os.getppid(), signal.SIGUSR1),
    "open a process": lambda _: bare("pidfd_open", os.getppid(), 0),
    "signal by a file": lambda _: bare("pidfd_send_signal", 0, signal.SIGUSR1, 0, 0),
    "take a file": lambda _: bare("pidfd_getfd", 0, 0, 0),
    "own a pipe as the parent": lambda _: fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()),
    "choose the owner's signal": lambda _: fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL),
    "limit the parent": lambda _: bare("prlimit64", os.getppid(), 7, 0, 0),
}


@pytest.mark.parametrize("what", ESCAPES)
def test_there_is_no_way_out(what: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    assert confined(lambda: ESCAPES[what](secret)) == "PermissionError"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("secret", 0o600)


def test_what_reading_needs_is_allowed() -> None:
    """Modules that are imported late, and threads of vendors' readers."""

    def work() -> None:
        import colorsys  # noqa: F401 - imported nowhere else

        assert not os.get_inheritable(os.dup(0))
        thread = threading.Thread(target=sum, args=([1, 2],))
        thread.start()
        thread.join()

    assert confined(work) == "done"


def test_on_an_unknown_processor_there_is_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    assert "abacus" not in ALLOWED
    assert allow_reading_only() is False
