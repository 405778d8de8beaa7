"""Runs that others own or can write: their files are data, and never run code."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import qtide
from qtide.core.errors import QtideError, UsageError
from qtide.core.files import check_own
from qtide.core.values import Packed
from qtide.runs.folder import RunFolder
from tests.interfaces.cli.inside import called, printed, refused

QUICK = (
    ("list", "--all"),
    ("show", "evil"),
    ("show", "last", "--json"),
    ("show", "evil", "--replay", "1e9"),
    ("logs", "evil"),
    ("export", "trace", "evil", "-o", "trace.json"),
)
READERS = (*QUICK, ("report", "evil"), ("export", "ro-crate", "evil", "-o", "crate"))
LEARNERS = (("twin", "calibrate", "evil"), ("predict", "evil"))


class Touch:
    """Unpickled, it leaves a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the run's code would leave; the current folder is another."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return tmp_path / "mark"


@pytest.fixture
def evil(mark: Path) -> Path:
    """A run whose every pickle, and whose program, would leave the file."""
    folder = mark.parent / "here" / "runs" / "evil"
    printed(
        "run",
        "synthetic",
        "--iterations",
        "2",
        "--cluster",
        "simulated",
        "--name",
        "evil",
        "--runs",
        "runs",
    )
    program = folder / "evil_program.py"
    program.write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    spec = json.loads((folder / "run.json").read_text())
    spec |= {"program": str(program), "words": [str(mark)]}
    (folder / "run.json").write_text(json.dumps(spec))
    packed = Packed(pickle.dumps(Touch(mark))).as_json()
    (folder / "call.json").write_text(json.dumps(packed | {"path": [str(folder)]}))
    (folder / "value.json").write_text(json.dumps(packed))
    entries: list[dict[str, Any]] = [{"program": "evil"}]
    entries += [{"key": f"{n}", "asked": "x", "outcome": packed} for n in range(1, 9)]
    (folder / "journal").write_bytes(b"".join(map(_line, entries)))
    return folder


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (crc32(text), text)


def given_away(folder: Path) -> None:
    """Make a folder another user's; without root, one that everybody can write."""
    if os.geteuid() == 0:
        for each in (folder, *folder.rglob("*")):
            os.chown(each, 12345, 12345)
    else:
        folder.chmod(0o757)


def test_what_only_reads_a_run_of_others_runs_none_of_its_code(evil: Path, mark: Path) -> None:
    given_away(evil)
    for words in READERS:
        done = called(*words, "--runs", "runs")
        assert not mark.exists(), words
        assert done.exit_code == 0, (words, done.output, done.exception)
    for words in LEARNERS:  # whether there is anything to learn or not
        assert isinstance(called(*words, "--runs", "runs").exception, QtideError | None)
    assert not mark.exists()
    crate = Path("crate/ro-crate-metadata.json").read_text()
    assert "another user's" in Path("crate/program.txt").read_text()
    assert '"Phase 1"' in crate
    assert "left out: " in called("export", "ro-crate", "evil", "-o", "c2", "--runs", "runs").stderr


def test_what_runs_it_is_refused_unless_the_run_is_trusted(
    evil: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_away(evil)
    for words in (("resume", "evil"), ("cancel", "evil")):
        assert "QTIDE_TRUST_RUNS=1" in refused(*words, "--runs", "runs") or os.geteuid()
    with pytest.raises(UsageError):
        _ = RunFolder(evil).value
    assert not mark.exists()
    monkeypatch.setenv("QTIDE_TRUST_RUNS", "1")
    called("resume", "evil", "--runs", "runs")
    assert mark.exists(), "the attack of this test would never have worked"


def test_a_session_of_others_is_not_continued(evil: Path, mark: Path) -> None:
    spec = json.loads((evil / "run.json").read_text()) | {"session": True}
    (evil / "run.json").write_text(json.dumps(spec))
    given_away(evil)
    with pytest.raises(UsageError, match=r"belongs to another user|can be written by everybody"):
        qtide.session(name="evil", runs="runs", cluster="local:1").__enter__()
    assert not mark.exists()


def test_a_file_of_others_in_ones_own_run_is_not_unpickled(evil: Path, mark: Path) -> None:
    """Whether it was written there when the folder was open to all, or is a link."""
    elsewhere = mark.parent / "elsewhere"
    for name in ("call.json", "journal", "value.json", "run.json"):
        shutil.copyfile(evil / name, elsewhere)
        elsewhere.chmod(0o666)
        copy = shutil.copytree(evil, mark.parent / name)
        (copy / name).unlink()
        (copy / name).symlink_to(elsewhere)
        assert "can be written by everybody" in refused("resume", copy)
    (evil / "values").mkdir()
    (evil / "values" / "one").write_bytes(b"")
    (evil / "values" / "one").chmod(0o666)
    assert "can be written by everybody" in refused("resume", evil)
    assert not mark.exists()


def test_links_of_others_lead_no_file_of_ones_own_into_a_record(evil: Path) -> None:
    secret = evil.parent / "secret"
    secret.write_text("the key is under the mat\n")
    (evil / "agents.log").unlink(missing_ok=True)
    (evil / "agents.log").symlink_to(secret)
    (evil / "run.json").write_text(json.dumps({"program": str(secret), "session": True}))
    given_away(evil)
    printed("export", "ro-crate", evil, "-o", "crate")
    files = [each for each in Path("crate").rglob("*") if each.is_file()]
    assert files
    assert not [each for each in files if b"under the mat" in each.read_bytes()]


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _endless(file: Path) -> None:
    file.symlink_to("/dev/zero")


def _nonsense(file: Path) -> None:
    lines = [[], {"t": "x"}, {"t": 1, "id": []}, {"t": 1, "id": 1}, {"t": 2, "note": {}}, 7]
    text = "\n".join(json.dumps(each) for each in lines) + "\n" + "[" * 100_000
    file.write_bytes(text.encode() + b"\xff\n" + _line({"key": [], "more": 1}) + _line({"key": 1}))


@pytest.mark.parametrize("put", [_pipe, _endless, _nonsense])
def test_no_file_of_a_run_stops_its_reader(evil: Path, put: Callable[[Path], None]) -> None:
    whole = shutil.copytree(evil, evil.parents[1] / "whole")
    for name in ("run.json", "journal", "ledger.jsonl", "end.json", "driver.json"):
        shutil.rmtree(evil)
        shutil.copytree(whole, evil)
        (evil / name).unlink(missing_ok=True)
        put(evil / name)
        printed("list", "--runs", "runs")
        for words in QUICK:
            failure = called(*words, "--runs", "runs").exception
            assert isinstance(failure, QtideError | SystemExit | None), (name, words)


def test_ones_own_group_may_write_and_another_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o775)
    monkeypatch.setattr("qtide.core.files._private_group", lambda _: True)
    check_own(tmp_path, "")
    monkeypatch.setattr("qtide.core.files._private_group", lambda _: False)
    with pytest.raises(UsageError, match="chmod g-w"):
        check_own(tmp_path, "")
