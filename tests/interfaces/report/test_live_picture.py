"""A run drawn in characters, while it goes on and again later."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.ledger import Interval, Ledger
from qtide.interfaces.report.live_picture import LedgerReader, glyphs, picture, until
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from tests.core.ledger_samples import two_jobs
from tests.interfaces.cli.inside import printed, refused
from tests.interfaces.cli.test_commands import PROGRAMS, as_json, qtide
from tests.runs.programs_for_tests import squares


def rows(spans: list[Interval], width: int) -> dict[str, str]:
    return {row.name: row.cells for row in glyphs(spans, 0.0, 14.0, width)}


def test_lanes_show_what_was_held_and_what_worked() -> None:
    drawn = rows(two_jobs(), 14)
    assert list(drawn) == ["n1", "n2", "QPU q", "vQPU 0", "queue nodes", "queue qpu"]
    assert drawn["n1"] == "███░░░░░░░    "
    assert drawn["n2"] == "░█░░ ██░░░░░░░"
    assert drawn["QPU q"] == "    ███████   "
    assert drawn["queue nodes"] == "    ·         "


spans = st.builds(
    lambda start, length, lane, what: Interval("a", what, lane, start, start + length),
    st.floats(0, 14),
    st.floats(0, 14),
    st.sampled_from(["node/n1", "qpu/q", "nodes"]),
    st.sampled_from(["held", "busy", "starting", "wait", "phase", "run"]),
)


@given(st.lists(spans), st.integers(1, 40))
def test_every_row_has_the_width_and_no_span_is_lost(found: list[Interval], width: int) -> None:
    drawn = glyphs(found, 0.0, 14.0, width)
    assert all(len(row.cells) == width for row in drawn)
    assert all(row.cells.strip() for row in drawn)


def test_a_replay_draws_only_what_had_happened(tmp_path: Path) -> None:
    now = 0.0
    ledger = Ledger("a", lambda: now)
    held = ledger.span("held", "node/n1")
    phase = ledger.span("phase", "quantum", "3 circuits")
    now = 4.0
    work = ledger.span("busy", "node/n1")
    now = 8.0
    for each in (work, phase, held):
        each.close()
    early = picture("a", until(ledger.events, 2.0), 2.0, 60)
    assert "█" not in early.partition("held")[0]
    assert "now: quantum 3 circuits" in early
    whole = picture("a", ledger.events, 0.0, 60)
    assert "█" in whole.partition("held")[0]
    assert "now:" not in whole


def test_a_reader_takes_whole_lines_as_they_come(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "it", Spec("synthetic"))
    reader = LedgerReader(run)
    assert reader.read() == []
    with run.ledger.open("w", buffering=1) as file:
        file.write('{"t": 1.0}\n{"t": 2')
        file.flush()
        assert reader.read() == [{"t": 1.0}]
        file.write('.5}\ntorn by a dead driver\n{"t": 3.0}\n')
        file.flush()
        assert [each["t"] for each in reader.read()] == [1.0, 2.5, 3.0]
    reader.close()


def test_a_run_of_another_process_is_followed_and_reported_before_its_end(tmp_path: Path) -> None:
    words = ("submit", f"{PROGRAMS}:squares", tmp_path, "--rounds", 12, "--name", "it")
    as_json(tmp_path, *words, "--cluster", "local:2")
    while not (tmp_path / "qtide-runs" / "it" / "ledger.jsonl").exists():
        assert as_json(tmp_path, "show", "it")["state"] in ("new", "running")
    report = qtide(tmp_path, "report", "it")
    if as_json(tmp_path, "show", "it")["state"] == "running":  # on a slow machine it may be over
        page = (tmp_path / "qtide-runs" / "it" / "report.html").read_text()
        assert "is still running: its figures are those so far" in page, report.stderr
    drawn = qtide(tmp_path, "show", "it", "--follow").stdout
    assert "it is done" in drawn
    assert "█" in drawn
    runs = ("--runs", tmp_path / "qtide-runs")
    assert "1e+06 × as fast" in printed("show", "it", "--replay", 1_000_000, *runs)
    assert "above 0" in refused("show", "it", "--replay", 0, *runs)
    assert "one of them" in refused("show", "it", "--follow", "--json", *runs)


def test_a_notebook_draws_a_run_below_its_line_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    class Handle:
        def update(self, shown: dict[str, str], raw: bool) -> None:
            texts.append(shown["text/plain"])

    monkeypatch.setattr("qtide.interfaces.progress._place_in_notebook", lambda _: Handle())
    monkeypatch.chdir(tmp_path)
    squares.run(str(tmp_path), rounds=6, cluster="local:2")
    assert any("is running" in text and "░ held" in text for text in texts)
    assert texts[-1].endswith("12 phases")


def test_a_run_is_watched_by_the_process_that_drives_it(tmp_path: Path) -> None:
    words = ("run", f"{PROGRAMS}:squares", tmp_path, "--rounds", 2, "--cluster", "local:2")
    done = qtide(tmp_path, *words, "--watch", "--name", "it")
    assert "result:" in done.stdout
    assert "█" in done.stderr
