"""A run that was made before packages were renamed can be resumed with today's code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qtide.runs.folder import RunFolder

DATA = Path(__file__).with_name("data")
PHASES = 8


@pytest.fixture
def old(tmp_path: Path) -> RunFolder:
    """The old run, whose program is elsewhere now and whose service no longer exists."""
    run = RunFolder(shutil.copytree(DATA / "before-renaming", tmp_path / "old"))
    description = json.loads((run.path / "run.json").read_text())
    description |= {"program": f"{DATA / 'everything.py'}", "qpu": "superconducting"}
    (run.path / "run.json").write_text(json.dumps(description))
    return run


def resume(run: RunFolder) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "qtide.cli.main", "resume", str(run.path), "--json"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def busy(run: RunFolder) -> list[Any]:
    """What has occupied a node, a QPU or the program."""
    return [span for span in run.intervals() if span.what in ("busy", "phase")]


def test_an_old_run_gives_its_old_result_and_repeats_nothing(old: RunFolder) -> None:
    assert old.end is not None
    value, journal, worked = old.end["value"], old.journal.read_bytes(), busy(old)
    old.unfinish()
    done = resume(old)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == value
    assert journal.count(b"\n") == 1 + PHASES  # one line for the program, and one per phase
    assert old.journal.read_bytes() == journal
    assert busy(old) == worked


def test_an_old_run_that_was_cut_short_can_be_resumed(old: RunFolder) -> None:
    """The last record but one is replayed, the last phase runs."""
    whole = old.journal.read_bytes().splitlines(keepends=True)
    old.journal.write_bytes(b"".join(whole[:-1]))
    assert old.end is not None
    value = old.end["value"]
    worked = len(busy(old))
    done = resume(old)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"]["failed"] == value["failed"]
    assert len(old.journal.read_bytes().splitlines()) == len(whole)
    assert len(busy(old)) > worked
