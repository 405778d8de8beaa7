"""The adviser of `--strategy auto`: what it knows of the moment changes what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qtide import program, quantum, task
from qtide.backends.client.client import Client
from qtide.backends.clusters.kind import Queue
from qtide.backends.clusters.pretend import pretend
from qtide.backends.clusters.simulated import Simulated
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError
from qtide.runs.folder import RunFolder, reference
from qtide.runs.spec import Spec
from qtide.runs.start import ADVISERS
from qtide.twin import advice
from qtide.twin.advice import choose
from tests.twin.sites import wide


@program
async def two_steps() -> int:
    """A classical and a quantum phase."""
    await task(pretend, 5.0)
    return int(await quantum(Burst(2.0, 7)))


def test_from_python_auto_learns_from_the_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        run = two_steps.run(strategy="auto", cluster="simulated", runs=tmp_path)
    first, second = capsys.readouterr().err.strip().splitlines()
    assert "strategy elastic: no earlier run" in first
    assert second.startswith(f"strategy workflow: judged by the run {tmp_path}/two_steps-")
    assert "it is as good as elastic, and simpler" in second
    assert RunFolder(run.folder).spec.strategy == "workflow"


def test_what_the_cluster_says_is_told_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_steps.run(cluster="simulated", runs=tmp_path, name="before")
    spec = Spec(reference(two_steps), cluster="simulated", time_scale=2.0)
    assert choose(spec, tmp_path).strategy == "workflow"
    queue = Queue(60.0, "the queue is long")
    monkeypatch.setattr(Simulated, "queue", lambda *_: queue)
    assert advice.present(spec, wide()).nodes == {1: 30.0, 3: 30.0}
    assert f"by the run {tmp_path}/before; the queue is long; " in choose(spec, tmp_path).why


def test_a_cluster_that_cannot_be_asked_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise QtideError("there is no sbatch here")

    two_steps.run(cluster="simulated", runs=tmp_path, name="before")
    monkeypatch.setattr(Simulated, "queue", broken)
    asked = Spec(reference(two_steps), cluster="simulated")
    advised = choose(asked, tmp_path)
    monkeypatch.undo()
    assert advised == choose(asked, tmp_path)  # as if the queue were empty
    assert advised.strategy == "workflow" and "/before; it is as good" in advised.why


def test_what_the_service_expects_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [
        {"name": "star", "expected_wait": 120.0},
        {"name": "atoms", "expected_wait": 0.0},
        {"name": "chip", "expected_wait": None},
    ]
    monkeypatch.setattr(Client, "devices", lambda _: devices)
    spec = Spec("any", cluster="simulated", qpu="http://127.0.0.1:1/star")
    now = advice.present(spec, wide())
    assert now.payload == 120.0 and now.words == ("payloads wait 120 s for the QPU",)
    anyone = replace(spec, qpu="http://127.0.0.1:1")
    assert advice.present(anyone, wide()).payload == 0.0
    away = advice.present(replace(spec, qpu="http://127.0.0.1:1/chip"), wide())
    assert away.payload is None and "when the QPU will be available" in away.words[0]


def test_auto_is_an_adviser_like_any_other() -> None:
    assert ADVISERS.names() == ["auto"]
