"""A service that many tests share, and services for a single test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService
from tests.service.serving import Serve

SHARED = """
[devices.dev]
kind = "burst"
policy = "fair"

[devices.annealer]
kind = "annealer"

[devices.star]
kind = "star"

[devices.drained]
kind = "burst"

[quotas.users.eve]
tasks = 3
"""


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """One service for all tests that do not disturb others; each has its own users."""
    folder = tmp_path_factory.mktemp("service")
    with LocalService(folder, SHARED, 'operators = ["root"]') as served:
        yield served


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serve]:
    """Services that a test may kill."""
    made: list[LocalService] = []

    def make(configuration: str, head: str = "") -> LocalService:
        folder = tmp_path / f"service-{len(made)}"
        folder.mkdir()
        made.append(LocalService(folder, configuration, head))
        return made[-1].start()

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def no_background_task_failed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail the test if a background task of a service failed, other than to try again."""
    caplog.set_level(logging.ERROR)
    yield
    found = [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR]
    assert [each for each in found if "is tried again" not in each.getMessage()] == []
