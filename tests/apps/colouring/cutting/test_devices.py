"""The fragments of a cut circuit on several devices of a service, of which one goes down."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.runs.driver import play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.service.local_service import LocalService
from tests.service.serving import wait_until

DEVICES = "".join(
    f'[devices.{name}]\nkind = "star"\nprofile = "annealer"\n' for name in ("one", "two")
)
PROGRAM = """
from qtide import Target, program
from qtide.apps.colouring.cutting.cut_step import CutOptions, cut_circuits_step
from tests.apps.colouring.cutting.clusters import PUBLISHED


@program
async def sets(target: Target) -> list[int]:
    options = CutOptions(optimiser="none", shots=200)
    found = await cut_circuits_step(PUBLISHED.graph, 1, options, target)
    return sorted(found[0])
"""


def test_fragments_that_wait_for_a_device_that_goes_down_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets.py").write_text(PROGRAM)
    with LocalService(tmp_path, DEVICES) as service:
        monkeypatch.setenv("QTIDE_TOKEN", service.token("ada"))
        client = Client(service.url, service.token("ada"))
        operator = Client(service.url, service.token("op", operator=True))
        for name in ("one", "two"):
            client.started_device(name)
        busy = client.submit(Burst(500.0), "one"), client.submit(Burst(100.0), "two")

        def fragments() -> list[dict[str, Any]]:
            return [each.response for each in client.tasks() if each.response["route"]]

        def fails() -> None:
            wait_until(lambda: len(fragments()) >= 1)
            assert {each["device"] for each in fragments()} == {"two"}
            operator.call("POST", "/v1/devices/two/drain", form={"reason": "cooling"})
            busy[0].cancel()

        failing = threading.Thread(target=fails)
        failing.start()
        spec = Spec(str(tmp_path / "sets.py"), cluster="local:2", qpu=f"{service.url}/any:star")
        outcome = play(RunFolder.create(tmp_path / "runs", "run", spec), lambda *_: None)
        failing.join(60.0)
        assert outcome.error is None
        assert outcome.value == [1, 3, 4, 7]
        found = fragments()
        assert len(found) == 2  # each fragment is a task of its own
        assert {(each["state"], each["device"]) for each in found} == {("done", "one")}
        busy[1].cancel()
