"""A store that was written before packages were renamed is served by today's service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService

OLD = Path(__file__).with_name("data") / "before-renaming.sqlite"
DONE = "4ac65231-ee85-4f36-9609-6cfe0a74a6f8"
QUEUED = "1528bdfc-65da-44ab-9aa3-4e48c5d8639d"
DEVICES = '[devices.star]\nkind = "star"\n[devices.dev]\nkind = "burst"\n'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    made = LocalService(tmp_path, DEVICES, "retention_days = 36500")
    made.state.mkdir()
    shutil.copy(OLD, made.state / "store.sqlite")
    with made as started:
        yield started


def test_an_old_store_keeps_its_answers_and_finishes_what_was_queued(
    service: LocalService,
) -> None:
    """The device of the queued task was being drained when the old service ended."""
    ada = service.client("ada", "chemistry")
    assert [shots.counts() for shots in ada.task(DONE).result(30)] == [
        {"10": 10, "11": 6},
        {"11": 7, "10": 9},
    ]
    assert ada.task(QUEUED).state == "queued"
    assert ada.device("dev")["state"] == "maintenance"
    service.operator().call("POST", "/v1/devices/dev/resume")
    assert ada.task(QUEUED).result(30) == {"left": "over"}
