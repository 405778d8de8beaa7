"""A service that many tests share, and services of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.serving import Service

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
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that harm no other; each has users of its own."""
    served = Service(tmp_path_factory.mktemp("service"), SHARED, 'operators = ["root"]').start()
    yield served
    served.stop()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Services that a test may kill."""
    made: list[Service] = []

    def make(configuration: str, head: str = "") -> Service:
        folder = tmp_path / f"service-{len(made)}"
        folder.mkdir()
        made.append(Service(folder, configuration, head))
        return made[-1].start()

    yield make
    for each in made:
        each.kill()
