"""What tests of a real service share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qtide.service.local_service import LocalService

BURSTS = """
[devices.dev]
kind = "burst"
policy = "fifo"
"""


Serve = Callable[..., LocalService]
"""Starts a service that the test may kill."""


def wait_until(holds: Any, limit: float = 180.0) -> None:
    """Return as soon as a condition holds."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"the condition did not hold within {limit:g} s")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
