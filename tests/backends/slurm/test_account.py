from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qtide.backends.clusters.slurm import accounting
from qtide.core.errors import UsageError
from qtide.interfaces.cli.main import application
from qtide.programs.program import located
from qtide.runs.driver import play
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import check_site
from qtide.runs.spec import Spec
from tests.backends.slurm.stage import Stage, until

SHAPE = """
iterations = 1
[[phase]]
tasks = [1.2, 1.2]
[[phase]]
quantum = 1.2
"""


@pytest.fixture
def run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run on the shared box that has ended; Slurm granted its leases."""
    monkeypatch.setenv("SLURM_CONF", str(stage.conf))
    shape = stage.folder / "shape.toml"
    shape.write_text(SHAPE)
    spec = Spec(located("synthetic"), [str(shape)], "workflow", "slurm", options={"qpu_by": "gres"})
    made = RunFolder.create(stage.folder / "runs", "job", spec)
    assert play(made, lambda *_: None).error is None
    return made


def shown(run: RunFolder, *more: str) -> str:
    done = CliRunner().invoke(
        application(), ["show", run.name, "--runs", str(run.path.parent), *more]
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_what_slurm_charges_stands_beside_what_was_held(run: RunFolder) -> None:
    found = json.loads(shown(run, "--json"))
    slurm = found["slurm"]
    assert found["metrics"]["open_ended"] == 0
    assert {each["missing"] for each in slurm.values()} == {0}
    assert {name: each["jobs"] for name, each in slurm.items()} == {"nodes": 1, "qpu": 1}
    for each in slurm.values():
        assert each["difference"] == each["charged"] - each["held"]
        assert abs(each["difference"]) < 4  # Slurm counts whole seconds, here of two nodes
    assert slurm["nodes"]["held"] > 2.4 and slurm["qpu"]["held"] > 1.2
    text = shown(run)
    assert "nodes, by the real clock: held " in text
    assert "charged" in text and "difference" in text


def test_what_a_killed_driver_held_is_known_from_slurm(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that stood still wrote nothing: only Slurm knows for how long it held its node."""
    monkeypatch.setenv("SLURM_CONF", str(stage.conf))
    (stage.folder / "shape.toml").write_text("iterations = 1\n[[phase]]\ntasks = [600]\n")
    words = ["run", "synthetic", str(stage.folder / "shape.toml"), "--strategy", "workflow"]
    where = ["--cluster", "slurm", "--runs", str(stage.folder / "runs"), "--name", "it"]
    driver = subprocess.Popen([sys.executable, "-m", "qtide", *words, *where])
    try:
        assert until(lambda: bool(stage.running()))
        ledger = stage.folder / "runs/it/ledger.jsonl"
        assert until(lambda: '"busy"' in ledger.read_text())
        driver.send_signal(signal.SIGSTOP)
        assert until(lambda: _elapsed(stage) >= 4)
    finally:
        driver.kill()
        driver.wait()
    run = RunFolder(stage.folder / "runs/it")
    before = sum(span.seconds for span in run.intervals() if span.what == "held")
    assert before < 3
    assert "at least" in shown(run)
    assert until(lambda: not stage.running() and not _held_open(run))
    found = json.loads(shown(run, "--json"))
    assert found["metrics"]["nodes_held"] >= 3
    assert abs(found["slurm"]["nodes"]["difference"]) < 2.1  # whole seconds, at both ends
    assert found["metrics"]["open_ended"] > 0  # nobody knows when its task ended


def _elapsed(stage: Stage) -> int:
    """Seconds for which the only job has run."""
    text = stage.slurm("squeue", "-h", "-t", "R", "-o", "%M").strip()
    return int(text.rpartition(":")[2]) if text else 0


def _held_open(run: RunFolder) -> bool:
    shown(run)
    return any(span.open_ended for span in run.intervals() if span.what == "held")


def test_records_that_slurm_does_not_have_yet_are_missed(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "PATIENCE", 0.0)
    with run.ledger.open("a") as ledger:
        for event in ({"t": 1, "id": 999, "job": "job", "what": "held", "lane": "node/c9"},):
            ledger.write(json.dumps(event | {"label": "4000000"}) + "\n")
        ledger.write(json.dumps({"t": 2, "end": 999}) + "\n")
    assert json.loads(shown(run, "--json"))["slurm"]["nodes"]["missing"] == 1
    assert "Slurm's records are not complete yet: 1 of the run's jobs" in shown(run)


def test_a_run_is_shown_while_slurm_is_away(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "gone.conf"))
    assert "Slurm's accounting is not available: SLURM_CONF names" in shown(run)
    assert "does not exist" in json.loads(shown(run, "--json"))["slurm"]["error"]


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (
            Spec("p", cluster="slurm", options={"qpu_by": "gras"}),
            "--qpu-by is none, gres, licence; .*",
        ),
        (Spec("p", cluster="slurm", nodes=0), "--nodes has to be at least 1, not 0"),
    ],
)
def test_bad_options_get_one_sentence(spec: Spec, complaint: str) -> None:
    with pytest.raises(UsageError, match=f"^{complaint}$"):
        check_site(spec)
