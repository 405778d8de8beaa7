"""Tests that need what this machine does not give are left out; test_wires.py says why."""

import os
import shutil
from pathlib import Path

from tests.backends.slurm.fixtures import install, unavailable
from tests.backends.slurm.network import refusal

ON_WIRES = ("test_network.py", "test_power.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if collection_path.name == "test_newest.py":
        return True if unavailable() else None
    if collection_path.name not in ON_WIRES:
        return None
    if os.geteuid() == 0 and shutil.which("ip") is None:
        install("the tests on cut wires need the package iproute2", ["iproute2"])
    return True if refusal() else None
