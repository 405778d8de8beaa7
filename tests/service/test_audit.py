"""What was done to a service is recorded: by whom, from where and why, and never a secret."""

from __future__ import annotations

import getpass
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.client.client import ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.service.audit import AuditTrail
from qtide.service.local_service import LocalService
from tests.interfaces.cli.inside import printed, refused
from tests.service.serving import BURSTS, Serve
from tests.service.test_reload import reloaded


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    words = BURSTS + "[quotas.user]\ntasks = 1\n"
    with LocalService(tmp_path_factory.mktemp("service"), words) as served:
        yield served


def audited(service: LocalService, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        printed("audit", "--state", service.state, "--json", *words)
    )
    return found


def test_tokens_drains_cancels_and_limits_are_recorded(service: LocalService) -> None:
    made = printed("token", "new", "eve", "--state", service.state).strip()
    eve, operator = service.client("eve"), service.operator()
    operator.call("POST", "/v1/devices/dev/drain", form={"reason": "cooling"})
    task = eve.submit(Burst(0.0), "dev")
    for _ in range(5):
        with pytest.raises(ServiceFailed, match="as many as allowed"):
            eve.submit(Burst(0.0), "dev")
    operator.call("POST", f"/v1/tasks/{task.id}/cancel")
    operator.call("POST", "/v1/devices/dev/resume")
    window = {"device": "dev", "start": 4e9, "end": 4e9 + 3600, "reason": "a new pump"}
    planned = operator.call("POST", "/v1/maintenance", form=window)
    operator.call("DELETE", f"/v1/maintenance/{planned['number']}")
    found = audited(service)
    assert [(each["event"], each["actor"]) for each in found] == [
        ("token made", getpass.getuser()),
        ("device drained", "operator"),
        ("token first used", "eve"),
        ("limit exceeded", "eve"),
        ("task cancelled", "operator"),
        ("device resumed", "operator"),
        ("maintenance planned", "operator"),
        ("maintenance cancelled", "operator"),
    ]
    assert (found[6]["reason"], found[6]["start"]) == ("a new pump", "2096-10-02T07:06Z")
    assert found[1]["reason"] == "cooling"
    assert found[1]["origin"] == f"uid {os.getuid()}"
    assert found[2]["origin"] == "address 127.0.0.1"
    assert found[4]["owner"] == "eve" and found[4]["task"] == task.id
    trail = service.state / "audit/audit.jsonl"
    assert stat.S_IMODE(trail.stat().st_mode) == 0o600
    assert made.startswith("qtide_") and made not in trail.read_text()
    printed("token", "revoke", found[0]["token"], "--state", service.state)
    assert [each["event"] for each in audited(service, "--event", "revoked")] == ["token revoked"]
    assert len(audited(service, "--actor", "eve")) == 2
    table = printed("audit", "--state", service.state, "--event", "drained")
    assert "cooling" in table and "device dev" in table


def test_a_token_is_first_used_once_although_the_service_is_restarted(serving: Serve) -> None:
    service = serving(BURSTS)
    client = service.client("ada")
    client.devices()
    service.stop()
    service.start()
    client.devices()
    assert [each["event"] for each in audited(service)] == ["token first used"]


def test_a_reload_is_recorded_with_what_changed(serving: Serve) -> None:
    service = serving(BURSTS)
    reloaded(service, 'policy = "fifo"', 'policy = "fair"')
    (entry,) = audited(service)
    assert (entry["event"], entry["changed"]) == ("configuration reloaded", ["devices.dev.policy"])


def test_the_trail_is_rotated_and_read_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AuditTrail, "MOST", 1000)
    monkeypatch.setattr(AuditTrail, "FILES", 3)
    trail = AuditTrail(tmp_path)
    for number in range(100):
        trail.record("something", "ada", number=number)
    (tmp_path / "audit.jsonl").open("a").write('{"cut off')
    numbers = [each["number"] for each in trail.entries()]
    assert numbers == list(range(numbers[0], 100))
    assert len(list(tmp_path.iterdir())) == 4


def test_a_disk_that_cannot_be_written_does_not_stop_the_service(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("no folder")
    AuditTrail(tmp_path / "audit").record("something", "ada")
    assert (tmp_path / "audit").read_text() == "no folder"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = refused("audit", "--state", tmp_path / "none")
    assert "there is no state of a service" in said


def test_many_refusals_of_one_actor_keep_no_others_out(tmp_path: Path) -> None:
    trail = AuditTrail(tmp_path)
    for number in range(2000):
        trail.refused("admission refused", "uid 666", f"job {number} holds no slot")
    for _ in range(2):
        trail.refused("admission refused", "uid 1000", "job 7 holds no slot")
    found = [each["actor"] for each in trail.entries()]
    assert found == ["uid 666"] * AuditTrail.OF_ONE_ACTOR + ["uid 1000"]
