"""Runs on devices that are not the annealer: circuits and atoms, without a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from qtide.backends.client.target import Target
from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.errors import UsageError
from qtide.runs.comparison import compare
from qtide.runs.driver import play, remedy
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.service.local_service import LocalService
from qtide.strategies.strategy import strategy_names
from tests.interfaces.cli.inside import refused
from tests.runs.test_crash import QTIDE, none_left
from tests.service.serving import wait_until

FILE = Path(__file__).with_name("circuits_program.py")
PROGRAM = f"{FILE}:circuits"
EXAMPLES = Path(__file__).parents[2] / "examples"
VIRTUAL = Spec(PROGRAM, cluster="simulated:2", qpu="noisy-star")


def value(folder: Path, spec: Spec) -> Any:
    """What a run gives, in this process."""
    outcome = play(RunFolder.create(folder, "run", spec), lambda *_: None)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


@cache
def expected(rounds: int = 3) -> Any:
    with TemporaryDirectory() as folder:
        return value(Path(folder), replace(VIRTUAL, words=["--rounds", str(rounds)]))


@pytest.mark.parametrize("strategy", ["static", "elastic"])
def test_the_default_device_follows_the_first_payload(tmp_path: Path, strategy: str) -> None:
    program = f"{FILE.with_name('shots_program.py')}:rows"
    done = subprocess.run(
        [*QTIDE, "run", program, "--cluster", "local:1", "--strategy", strategy],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    assert "so the QPU is gate:superconducting,qubits=20; --qpu names another" in done.stderr
    assert "result: [1, 300, 300, " in done.stdout


@pytest.mark.parametrize("cluster", ["local:2", "simulated:2"])
def test_circuits_give_the_same_under_every_strategy_in_every_world(
    tmp_path: Path, cluster: str
) -> None:
    spec = replace(VIRTUAL, cluster=cluster, time_scale=0.1)
    cases = compare(tmp_path, spec, strategy_names(), [1, 2], lambda *_: None)
    ends = [run.end for case in cases for run in case.runs]
    assert [(end or {}).get("value") for end in ends] == [expected()] * 15
    assert none_left(tmp_path)
    busy = [span for span in cases[0].runs[0].intervals() if span.lane == "qpu/noisy-star"]
    assert [span.what for span in busy] == ["busy"] * 3
    assert all(span.seconds >= 0.4 - 1e-6 for span in busy)  # 0.3 s, and 0.5 ms per shot


def test_another_seed_gives_other_shots(tmp_path: Path) -> None:
    assert value(tmp_path, replace(VIRTUAL, seed=1)) != expected()


def test_atoms_give_the_same_in_both_worlds(tmp_path: Path) -> None:
    spec = Spec(f"{EXAMPLES / 'hello.py'}", cluster="simulated:1", qpu="atoms", time_scale=0.001)
    found = [value(tmp_path, replace(spec, cluster=each)) for each in ("simulated:1", "local:1")]
    assert found[0] == found[1] == {0: 0, 1: 1, 2: 0, 3: 1}


def test_the_example_runs_on_an_ideal_and_on_a_noisy_device(tmp_path: Path) -> None:
    spec = Spec(f"{EXAMPLES / 'ghz.py'}", cluster="simulated:1", qpu="star")
    assert set(value(tmp_path, spec).values()) == {1.0}
    noisy = value(tmp_path, replace(spec, qpu="noisy-star"))
    assert 0.5 < noisy["5 qubits"] < noisy["2 qubits"] < 1
    assert len(value(tmp_path, replace(spec, qpu="gate,qubits=3"))) == 2


def test_a_device_that_does_not_take_the_programs_payloads_is_refused_before_it_runs(
    tmp_path: Path,
) -> None:
    flow = tmp_path / "flow.toml"
    steps = '[[step]]\nname = "a"\ncommand = ["true"]\n[[step]]\nname = "b"\nquantum = "x.bqm"\n'
    flow.write_text(f"result = 'b/answer.json'\n{steps}")
    for program, qpu, payload in (
        (EXAMPLES / "ghz.py", "annealer", "qpy"),
        (flow, "star", "bqm"),
    ):
        words = ("run", program, "--qpu", qpu, "--cluster", "local:1", "--runs", tmp_path / "runs")
        said = refused(*words)
        assert f"payloads are {payload}, which the {qpu} does not take; --qpu " in said
    assert not (tmp_path / "runs").exists()


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    where = ["--runs", str(folder), "--name", "it", "--cluster", "local:1", "--json"]
    words = ["run", PROGRAM, "--qpu", "noisy-star", *where, *more]
    return subprocess.Popen(
        [*QTIDE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def worker(folder: Path) -> list[int]:
    """The processes whose log is the device's."""
    found = []
    for place in Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if Path(os.readlink(place)) == folder / "it" / "device.log":  # noqa: PTH115 - may be gone
                found.append(int(place.parts[2]))
        except OSError:
            continue
    return found


def occupied(folder: Path, times: int) -> bool:
    ledger = folder / "it" / "ledger.jsonl"
    return ledger.exists() and ledger.read_text().count("qpu/noisy-star") >= times


def test_a_worker_that_is_killed_with_a_payload_costs_nothing_but_time(tmp_path: Path) -> None:
    driver = start(tmp_path, "--rounds", "6")
    wait_until(lambda: occupied(tmp_path, 2), 60)
    (pid,) = worker(tmp_path)
    os.kill(pid, signal.SIGKILL)
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert json.loads(out)["value"] == expected(6)
    assert none_left(tmp_path)


def test_a_driver_that_is_killed_leaves_no_worker_and_resumes(tmp_path: Path) -> None:
    driver = start(tmp_path, "--rounds", "6")
    wait_until(lambda: occupied(tmp_path, 2), 60)
    assert len(worker(tmp_path)) == 1
    driver.kill()
    driver.communicate(timeout=20)
    assert none_left(tmp_path)
    words = [*QTIDE, "resume", "it", "--runs", str(tmp_path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["value"] == expected(6)
    assert none_left(tmp_path)


def test_an_interrupted_driver_leaves_no_worker(tmp_path: Path) -> None:
    driver = start(tmp_path, "--rounds", "50")
    wait_until(lambda: len(worker(tmp_path)) == 1, 60)
    wait_until((tmp_path / "it" / "driver.json").exists, 60)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=20)
    assert driver.returncode == 130
    assert none_left(tmp_path)


@pytest.mark.parametrize("strategy", strategy_names())
@pytest.mark.parametrize(
    ("qpu", "sentence"),
    [
        ("annealer", "takes a dimod.BinaryQuadraticModel, not str; --qpu gate, grid, noisy-star "),
        ("star", "it has 9 qubits, the device 5; a parameter `target`"),
    ],
)
def test_what_a_device_does_not_take_is_refused_before_anything_is_queued(
    tmp_path: Path, qpu: str, sentence: str, strategy: str
) -> None:
    spec = Spec(f"{FILE}:refused", strategy=strategy, cluster="simulated:1", qpu=qpu)
    run = RunFolder.create(tmp_path, "run", spec)
    outcome = play(run, lambda *_: None)
    assert isinstance(outcome.error, PayloadRefused) and sentence in str(outcome.error)
    assert "for another one, start a new run" in remedy(outcome.error)
    assert not [span for span in run.intervals() if span.lane.startswith("qpu")]


def test_a_program_keeps_its_own_target(tmp_path: Path) -> None:
    assert value(tmp_path, Spec(f"{FILE}:own", cluster="simulated:1")) == 0.5


def test_a_resumed_run_has_the_target_it_began_with(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run", VIRTUAL)
    play(run, lambda *_: None)
    whole = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(whole[:-2]))  # without its last round
    run.unfinish()
    replace(VIRTUAL, qpu="star,noisy").write(run.path / "run.json")
    assert play(RunFolder(run.path), lambda *_: None).value == expected()
    replace(VIRTUAL, qpu="gate,qubits=2").write(run.path / "run.json")
    run.journal.write_bytes(b"".join(whole[:-2]))
    run.unfinish()
    refusal = play(RunFolder(run.path), lambda *_: None).error
    assert isinstance(refusal, PayloadRefused) and "there is no qubit 'QB3'" in str(refusal)


def test_a_target_says_what_the_device_takes() -> None:
    star = Target("star", "star", {"formats": ["iqm"], "qubits": ["a", "b"], "connections": []})
    assert (star.qubits, star.connections, star.gates, star.most) == (2, [], [], {})
    assert Target("annealer", "annealer", {"formats": ["bqm"]}).qubits == 0


def test_a_target_needs_qiskit_for_its_qiskit_form_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qtide.backends.client.backend", None)
    star = Target("star", "star", {"formats": ["qpy"], "qubits": ["a"], "connections": []})
    assert star.formats == ["qpy"]
    with pytest.raises(UsageError, match=r"needs Qiskit .*pip install 'qtide\[gate\]'"):
        star.qiskit()


def test_a_service_gives_the_same_target(tmp_path: Path) -> None:
    devices = "".join(f'[devices.{name}]\nkind = "star"\n' for name in ("star", "other"))
    with LocalService(tmp_path, devices, "anonymous = true") as service:
        spec = replace(VIRTUAL, cluster="local:1", qpu=f"{service.url}/star", words=["--rounds=1"])
        found = value(tmp_path / "runs", spec)
        assert found[:2] == ["star", 5] and sum(found[2][2].values()) == 200
        with pytest.raises(UsageError, match=f"several devices: .* --qpu {service.url}/star"):
            value(tmp_path / "runs", replace(spec, qpu=service.url))
