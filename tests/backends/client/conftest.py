"""One service per test process, for all tests of the clients."""

from collections.abc import Iterator

import pytest

from qtide.backends.client.client import Client
from qtide.service.local_service import LocalService

DEVICES = """
[devices.star]
kind = "star"

[devices.complete]
kind = "gate"
qubits = 4

[devices.line]
kind = "gate"
qubits = 5
connections = [[0, 1], [1, 2], [2, 3], [3, 4]]

[devices.noisy]
kind = "noisy-star"

[devices.wide]
kind = "gate"
qubits = 6

[devices.slow]
kind = "star"
profile = "trapped-ion"  # 2 s, and 20 ms per shot

[devices.annealer]
kind = "annealer"
profile = "annealer"
"""


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("service"), DEVICES) as served:
        yield served


@pytest.fixture(scope="session")
def client(service: LocalService) -> Client:
    return service.client("ada")
