"""The log of a run: lines with time, node and task, in a file that does not grow without end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.core import log
from qtide.core.log import Log, LogLine, earlier, follow, lines


def test_each_line_has_its_time_node_and_task(tmp_path: Path) -> None:
    Log(tmp_path / "log", lambda: "12.5").write("n1", "one\ntwo\tthree\n", "3/0", "kmeans")
    assert list(lines(tmp_path / "log")) == [
        LogLine("12.5", "n1", "3/0", "kmeans", "one"),
        LogLine("12.5", "n1", "3/0", "kmeans", "two\tthree"),
    ]


def test_a_progress_bar_leaves_its_last_state(tmp_path: Path) -> None:
    Log(tmp_path / "log").write("n1", "10 %\r50 %\r100 %\r\ndone\n")
    assert [each.text for each in lines(tmp_path / "log")] == ["100 %", "done"]


def test_a_line_of_an_earlier_version_is_only_text(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("srun: error: n1: task 0: Killed\n")
    assert list(lines(tmp_path / "log")) == [
        LogLine("", "", "", "", "srun: error: n1: task 0: Killed")
    ]


def test_a_full_log_is_kept_once_and_a_new_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST", 100)
    written = Log(tmp_path / "log", lambda: "0")
    for number in range(50):
        written.write("n1", f"line {number}")
    kept = [each.text for each in lines(tmp_path / "log")]
    assert kept == [f"line {number}" for number in range(50)][-len(kept) :]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 300


def test_who_follows_hears_everything_over_a_new_file_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST", 100)
    written = Log(tmp_path / "log", lambda: "0")
    rounds = iter(range(30))

    def over() -> bool:
        number = next(rounds)
        written.write("n1", f"line {number}")
        return number == 29

    heard = [each.text for each in follow(tmp_path / "log", over, pause=0)]
    assert heard == [f"line {number}" for number in range(30)]
    assert earlier(tmp_path / "log").exists()


def test_a_line_that_is_being_written_is_heard_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    parts = iter(["0\tn1\t1/0\tf\thalf", " a line\n", ""])

    def over() -> bool:
        part = next(parts)
        with file.open("a") as opened:
            opened.write(part)
        return not part

    heard: Iterator[LogLine] = follow(file, over, pause=0)
    assert [each.text for each in heard] == ["half a line"]


def test_a_full_disk_is_no_reason_to_end_a_run(tmp_path: Path) -> None:
    Log(tmp_path / "missing" / "log").write("n1", "text")
    assert list(lines(tmp_path / "missing" / "log")) == []
