"""A disk that is really full: nothing new is accepted, and nothing accepted is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from tests.service.serving import BURSTS

pytestmark = pytest.mark.slurm  # it needs root, to mount a disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(file: Path) -> None:
    with pytest.raises(OSError, match="No space left"), file.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))


def test_a_few_large_tasks_leave_room_for_small_ones_of_others(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", place], check=True)
    try:
        with LocalService(place, BURSTS) as service:
            hog = Client(service.url, service.token("hog"), patience=0.0)
            refused = 0
            for _ in range(6):
                try:
                    hog.run(Burst(0.0, "x" * 8_000_000), "dev")
                except ServiceFailed as error:
                    assert error.status == 507
                    refused += 1
            assert refused > 0
            ada = Client(service.url, service.token("ada"), patience=0.0)
            assert [ada.run(Burst(0.0, n), "dev") for n in range(20)] == list(range(20))
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_what_was_accepted_is_answered_once_there_is_room_again(disk: Path) -> None:
    folder = disk / "service"
    folder.mkdir()
    with LocalService(folder, BURSTS + "[limits]\ndisk_reserve = 1024\n") as service:
        client = Client(service.url, service.token("ada"), patience=0.0)
        tasks = [client.submit(Burst(0.1, n), "dev") for n in range(5)]
        fill(disk / "other")
        with pytest.raises(ServiceFailed, match="the disk of the service is full") as refused:
            client.submit(Burst(0.0), "dev")
        assert refused.value.status == 507
        assert urllib3.request("GET", f"{service.url}/health", retries=False).status == 503
        (disk / "other").unlink()
        assert [task.result(60.0) for task in tasks] == list(range(5))
        assert client.run(Burst(0.0, "room"), "dev") == "room"
