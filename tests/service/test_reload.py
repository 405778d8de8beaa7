"""A service reads its configuration again, and says what has changed, or why nothing has."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from qtide.backends.client.client import ServiceFailed
from qtide.backends.devices.device import WorkerLost
from qtide.backends.payloads.payload import Burst, Encoded
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import DeviceSetup
from qtide.service.device.validator import Validator
from qtide.service.local_service import LocalService
from qtide.service.virtual_service import SimulatedDevice
from tests.service.serving import Serve, wait_until

TWO = """
[devices.dev]
kind = "burst"
policy = "fifo"

[devices.old]
kind = "burst"
"""
OTHER = """
[devices.dev]
kind = "burst"
policy = "shortest"

[devices.new]
kind = "annealer"

[quotas.users.eve]
tasks = 1
qpu_seconds = 10
"""


def reloaded(service: LocalService, before: str, after: str) -> dict[str, Any]:
    """Change the configuration, and send the signal; what the log says of it."""
    service.file.write_text(service.file.read_text().replace(before, after))
    known = len(heard(service))
    os.kill(service.pid, signal.SIGHUP)
    wait_until(lambda: len(heard(service)) > known)
    return heard(service)[-1]


def heard(service: LocalService) -> list[dict[str, Any]]:
    return [line for line in service.log() if line["event"].startswith("configuration ")]


def states(service: LocalService) -> dict[str, str]:
    return {each["name"]: each["state"] for each in service.operator().devices()}


def test_devices_and_quotas_change_while_tasks_run_and_wait(serving: Serve) -> None:
    service = serving(TWO)
    ada, eve = service.client("ada"), service.client("eve")
    running, waiting = (ada.submit(Burst(1.0, n), "dev") for n in range(2))
    left = ada.submit(Burst(0.0, "left"), "old")
    left.result()
    wait_until(lambda: running.refresh().response["started"] is not None)
    said = reloaded(service, TWO, OTHER)
    assert said["event"] == "configuration reloaded"
    assert said["after_restart"] == []
    assert {"devices.dev.policy", "quotas.users.eve"} <= set(said["changed"])
    assert (running.result(), waiting.result()) == (0, 1)
    assert running.response["attempts"] == 1
    wait_until(lambda: states(service) == {"dev": "idle", "new": "idle"})
    policies = {each["name"]: each["policy"] for each in service.operator().devices()}
    assert policies == {"dev": "shortest", "new": "fair"}
    with pytest.raises(ServiceFailed, match="there is no device 'old'"):
        ada.submit(Burst(0.0), "old")
    with pytest.raises(ServiceFailed, match=r"should take 11 s .* may use 10 s per day") as never:
        eve.submit(Burst(11.0), "dev")
    assert never.value.status == 403


def test_a_wrong_configuration_is_refused_and_the_old_one_stays(serving: Serve) -> None:
    service = serving(TWO)
    said = reloaded(service, 'policy = "fifo"', 'policy = "luck"')
    assert said["event"] == "configuration not reloaded"
    assert "there is no policy 'luck'" in said["why"]
    assert service.client().run(Burst(0.0, "still there"), "dev") == "still there"
    said = reloaded(service, 'policy = "luck"', 'policy = "fifo"\nlimit = 5')
    assert said["changed"] == ["devices.dev.limit"]


def test_what_needs_a_restart_is_said(serving: Serve) -> None:
    service = serving(TWO)
    said = reloaded(service, "[devices.dev]", 'socket = "/nowhere/socket"\n[devices.dev]')
    assert (said["changed"], said["after_restart"]) == ([], ["socket"])
    assert states(service) == {"dev": "idle", "old": "idle"}


def test_tasks_of_a_removed_device_wait_for_its_return(serving: Serve) -> None:
    service = serving(TWO)
    operator, ada = service.operator(), service.client("ada")
    operator.call("POST", "/v1/devices/old/drain", form={"reason": "cooling"})
    task = ada.submit(Burst(0.0, "late"), "old")
    assert (task.refresh().response["reason"], task.response["expected_start"]) == (
        "maintenance",
        None,
    )
    reloaded(service, '[devices.old]\nkind = "burst"\n', "")
    wait_until(lambda: "old" not in states(service))
    wait_until(lambda: task.refresh().response["reason"] == "down")
    reloaded(service, "[devices.dev]", '[devices.old]\nkind = "burst"\n[devices.dev]')
    wait_until(lambda: states(service).get("old") == "maintenance")
    operator.call("POST", "/v1/devices/old/resume")
    assert task.result(30.0) == "late"


def test_iqms_api_shows_the_devices_that_there_are_now(serving: Serve) -> None:
    service = serving(TWO)
    reloaded(service, "[devices.dev]", '[devices.star]\nkind = "star"\n[devices.dev]')
    wait_until(lambda: states(service).get("star") == "idle")
    computers = service.client().call("GET", "/api/v1/quantum-computers")
    assert [each["alias"] for each in computers["quantum_computers"]] == ["star"]


def test_a_payload_that_is_checked_while_its_device_is_replaced_is_sent_again() -> None:
    """Its validators are gone; it must not start new ones for a device that is no longer."""

    class NoMore(SimulatedDevice):
        async def start(self, *_: Any, **__: Any) -> Any:
            pytest.fail("a validator was started for a device that is gone")

    world = VirtualWorld()
    validator = Validator("dev", DeviceSetup(kind="burst"), world, NoMore(world))

    async def main() -> None:
        await validator.close()
        with pytest.raises(WorkerLost, match="is being replaced or stopped; send it again"):
            await validator.check(Encoded("bqm", b"{}"))

    world.run(main())
