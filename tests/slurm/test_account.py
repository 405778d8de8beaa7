from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qtide.cli.main import application
from qtide.errors import UsageError
from qtide.programs.load import located
from qtide.runs.folder import RunFolder
from qtide.runs.session import play
from qtide.runs.site import check_site
from qtide.runs.spec import Spec
from tests.slurm.stage import Stage

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
    slurm = json.loads(shown(run, "--json"))["slurm"]
    assert {name: each["jobs"] for name, each in slurm.items()} == {"nodes": 1, "qpu": 1}
    for each in slurm.values():
        assert each["difference"] == each["charged"] - each["held"]
        assert abs(each["difference"]) < 4  # Slurm counts whole seconds, here of two nodes
    assert slurm["nodes"]["held"] > 2.4 and slurm["qpu"]["held"] > 1.2
    text = shown(run)
    assert "nodes, by the real clock: held " in text
    assert "charged" in text and "difference" in text


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
