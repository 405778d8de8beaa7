"""One service for all tests of the IQM API that a process runs."""

from collections.abc import Iterator

import pytest

from qtide.service.local_service import LocalService
from tests.service.apis.calling import Caller

DEVICES = """
[devices.star]
kind = "star"
profile = "annealer"  # 15 ms, and 0.2 ms per shot

[devices.crowded]
kind = "star"
profile = "annealer"

[devices.quick]
kind = "star"
noisy = true
limit = 0.001  # of the device's time

[devices.gate]
kind = "gate"
apis = ["native"]

[devices.annealer]
kind = "annealer"
"""


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("service"), DEVICES) as served:
        yield served


@pytest.fixture(scope="session")
def ada(service: LocalService) -> Caller:
    return Caller(service.url, service.token("ada"))


@pytest.fixture(scope="session")
def bob(service: LocalService) -> Caller:
    return Caller(service.url, service.token("bob"))
