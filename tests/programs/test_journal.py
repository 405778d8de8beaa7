import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.errors import QtideError
from qtide.programs.journal import Journal, JournalRecord

records = st.lists(
    st.builds(
        JournalRecord,
        key=st.from_regex(r"[1-9](\.[1-9]){0,3}", fullmatch=True),
        asked=st.text(max_size=20),
        outcome=st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=3),
        failed=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda record: record.key,
)


def written(path: Path, entries: list[JournalRecord]) -> Path:
    path.unlink(missing_ok=True)
    journal = Journal(path, "p")
    for entry in entries:
        journal.append(entry)
    journal.close()
    return path


def found(path: Path, entries: list[JournalRecord]) -> list[JournalRecord | None]:
    journal = Journal(path, "p")
    result = [journal.find(entry.key) for entry in entries]
    journal.close()
    return result


@given(entries=records)
def test_what_was_appended_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, entries: list[JournalRecord]
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "again", entries)
    assert found(path, entries) == entries


@given(entries=records, share=st.floats(0, 1))
def test_a_journal_cut_anywhere_keeps_its_whole_records(
    tmp_path_factory: pytest.TempPathFactory, entries: list[JournalRecord], share: float
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "cut", entries)
    whole = path.read_bytes()
    cut = int(len(whole) * share)
    path.write_bytes(whole[:cut])
    left = whole[:cut].count(b"\n") - 1  # the first line names the program
    kept = entries[: max(left, 0)]
    assert found(path, entries) == kept + [None] * (len(entries) - len(kept))
    extra = JournalRecord("99", "more", {})
    journal = Journal(path, "p")
    journal.append(extra)
    journal.close()
    assert found(path, [*kept, extra]) == [*kept, extra]


def test_damage_before_the_end_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", [JournalRecord(str(n), "a", {}) for n in range(3)])
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"asked", b"asxed")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(QtideError, match="damaged in line 3"):
        Journal(path, "p")


def test_a_second_driver_is_refused(tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal", "p")
    with pytest.raises(QtideError, match="another driver is working"):
        Journal(tmp_path / "journal", "p")
    first.close()
    Journal(tmp_path / "journal", "p").close()


def test_the_journal_of_another_program_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal", "p").close()
    with pytest.raises(QtideError, match="journal of the program p, not of q"):
        Journal(tmp_path / "journal", "q")


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A limit on the file's size stands in for a full disk: the write also fails half-way."""
    script = """
import resource, sys
from pathlib import Path
from qtide.programs.journal import Journal, JournalRecord
journal = Journal(Path(sys.argv[1]), "p")
journal.append(JournalRecord("1", "kept", {}))
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
try:
    journal.append(JournalRecord("2", "x" * 500, {}))
except Exception as error:
    print(error)
"""
    path = tmp_path / "journal"
    words = [sys.executable, "-c", script, str(path)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "cannot be written" in said
    assert "make room, then resume" in said
    assert found(path, [JournalRecord("1", "kept", {})]) == [JournalRecord("1", "kept", {})]
    assert path.read_bytes().endswith(b"\n")


def test_the_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", [])
    assert os.stat(path).st_mode & 0o077 == 0  # noqa: PTH116 - the mode is what is tested
