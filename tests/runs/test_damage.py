"""Torn files, as a full disk or a crash leaves them, spoil nothing but themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qtide.interfaces.python.description import describe
from qtide.runs.folder import RunFolder
from tests.interfaces.cli.inside import called, printed, refused

QTIDE = [sys.executable, "-m", "qtide"]
RUN = ("run", "synthetic", "--iterations", "4", "--cluster", "simulated")
SMALL = ("run.json", "driver.json", "end.json", "durations.json", "lessons.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, the newer of which has every kind of file."""
    runs = tmp_path_factory.mktemp("whole")
    for name in ("older", "newer"):
        printed(*RUN, "--name", name, "--runs", runs)
    run = RunFolder(runs / "newer")
    run.note_durations(["used"], ["missing"])
    (run.path / "lessons.json").write_text('{"nodes": {}, "phases": {}}\n')
    os.utime(runs / "older" / "run.json", (1, 1))
    return runs


@pytest.mark.parametrize("name", SMALL)
def test_a_file_torn_at_any_length_spoils_nothing_but_its_own_run(
    whole: Path, tmp_path: Path, name: str
) -> None:
    runs = Path(shutil.copytree(whole, tmp_path / "runs"))
    file = runs / "newer" / name
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        damaged = name in ("run.json", "end.json") and length < len(data) - 1
        assert (RunFolder(runs / "newer").damage is not None) == damaged
        assert RunFolder.find(runs, "last").name == ("older" if damaged else "newer")
        if not damaged:
            assert describe(RunFolder(runs / "newer"))["state"] == "done"
        elif length % 60 == 0:
            listed = json.loads(printed("list", "--json", "--runs", runs))
            assert [row["state"] for row in listed] == ["done", "damaged"]
            assert "cannot be read" in refused("show", "newer", "--runs", runs, code=1)


def test_a_report_leaves_a_damaged_run_out(whole: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(whole, tmp_path / "runs"))
    (runs / "newer" / "run.json").write_text("")
    done = called("report", runs, "--runs", runs)
    assert done.exit_code == 0, done.exception
    assert "left out: " in done.stderr and "newer/run.json cannot be read" in done.stderr


@pytest.mark.parametrize("blocks", [0, 1, 4])
def test_a_run_on_a_full_disk_ends_with_a_sentence_and_is_gone_or_can_be_resumed(
    tmp_path: Path, blocks: int
) -> None:
    """No file may be longer than so many blocks of 512 bytes."""
    words = [*QTIDE, *RUN, "--name", "it", "--runs", str(tmp_path)]
    limited = ["/bin/sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *words]
    # Python would keep a module cut off at the limit, and every later command would fail
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(limited, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or len(done.stderr.strip().splitlines()) >= 1
    if done.returncode == 0:
        assert "could not write its ledger" in done.stdout  # its figures are not complete
    rows = json.loads(printed("list", "--json", "--runs", tmp_path))
    assert [row["damage"] for row in rows] == [None] * len(rows)
    if rows:
        again = called("resume", "it", "--json", "--runs", tmp_path)
        assert json.loads(again.stdout)["state"] == "done"
    else:
        assert list(tmp_path.iterdir()) == []
        assert "no run can be kept in" in done.stderr


def test_a_damaged_driver_file_is_named(whole: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(whole, tmp_path / "runs"))
    (runs / "newer" / "driver.json").write_text('{"host"')
    assert "driver.json is damaged" in printed("show", "newer", "--runs", runs)


def test_others_never_write_into_a_new_run(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        printed(*RUN, "--name", "open", "--runs", tmp_path)
    finally:
        os.umask(before)
    assert not (tmp_path / "open").stat().st_mode & 0o022
    assert RunFolder(tmp_path / "open").distrust is None, "nor into any of its parts"
