"""A confined process: it computes and answers by its pipe, and can do nothing else."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from qtide.core.sandbox import FORBIDDEN, confine, forbid_calls


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
    assert confined(lambda: made.write_text("made")) == "OSError"
    assert kept.read_text() == "kept"


def test_on_an_unknown_processor_there_is_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    assert "abacus" not in FORBIDDEN
    assert forbid_calls() is False
