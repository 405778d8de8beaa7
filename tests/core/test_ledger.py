from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from qtide.core.ledger import Interval, Ledger, append, left_open, read, read_events


@pytest.fixture
def clock() -> Callable[[], float]:
    """A clock that advances one second per look."""
    ticks = count()
    return lambda: float(next(ticks))


def test_spans_become_intervals(clock: Callable[[], float]) -> None:
    ledger = Ledger("a", clock)
    with ledger.span("run", ""), ledger.span("busy", "node/n1", "cluster"):
        pass
    assert ledger.intervals() == [
        Interval("a", "busy", "node/n1", 1, 2, "cluster"),
        Interval("a", "run", "", 0, 3),
    ]


def test_to_close_twice_does_no_harm(clock: Callable[[], float]) -> None:
    ledger = Ledger("a", clock)
    span = ledger.span("run", "")
    span.close()
    span.close()
    assert [each.end for each in ledger.intervals()] == [1]


def test_a_file_holds_what_memory_would(clock: Callable[[], float], tmp_path: Path) -> None:
    ledger = Ledger("a", clock, tmp_path / "ledger.jsonl")
    with ledger.span("run", ""), ledger.span("wait", "qpu", 'é "<\n'):
        pass
    ledger.close()
    assert read(tmp_path / "ledger.jsonl") == [
        Interval("a", "wait", "qpu", 1, 2, 'é "<\n'),
        Interval("a", "run", "", 0, 3),
    ]


def test_a_torn_last_line_is_passed_over(clock: Callable[[], float], tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    ledger = Ledger("a", clock, file)
    with ledger.span("run", ""):
        pass
    ledger.close()
    file.write_text(file.read_text() + '{"t": 7.0, "id": 2, "jo')
    assert read(file) == [Interval("a", "run", "", 0, 1)]


def test_what_a_dead_driver_left_open_lasted_at_least_until_its_last_event(
    clock: Callable[[], float],
) -> None:
    ledger = Ledger("a", clock)
    ledger.span("run", "")
    ledger.span("held", "node/n1")
    ledger.span("busy", "node/n1").close()
    assert sorted(ledger.intervals(), key=lambda each: each.start) == [
        Interval("a", "run", "", 0, 3, open_ended=True),
        Interval("a", "held", "node/n1", 1, 3, open_ended=True),
        Interval("a", "busy", "node/n1", 2, 3),
    ]


def test_while_a_driver_lives_its_spans_last_until_now(
    clock: Callable[[], float], tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    Ledger("a", clock, file).span("run", "")
    assert read(file, now=9.0) == [Interval("a", "run", "", 0, 9, open_ended=True)]


def test_a_driver_that_stands_still_writes_that_it_is_alive(
    clock: Callable[[], float], tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    ledger = Ledger("a", clock, file)
    ledger.span("run", "")
    ledger.beat()  # the span itself was a sign of life
    assert len(file.read_text().splitlines()) == 1
    ledger.beat()
    ledger.beat()
    assert [span.end for span in read(file)] == [2]
    assert len(file.read_text().splitlines()) == 3


def test_what_comes_to_light_later_closes_what_was_left_open(
    clock: Callable[[], float], tmp_path: Path
) -> None:
    file = tmp_path / "ledger.jsonl"
    dead = Ledger("a", clock, file)
    dead.span("run", "")
    dead.span("held", "node/n1", "7")
    dead.close()
    (number,) = (n for n, event in left_open(read_events(file)).items() if "label" in event)
    append(file, [{"t": 99.0, "end": number}])
    held, run = sorted(read(file), key=lambda each: each.what)
    assert (held.end, held.open_ended) == (99.0, False)
    assert run.open_ended
    assert list(left_open(read_events(file))) == [1]


def test_a_resumed_run_begins_anew(clock: Callable[[], float], tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    dead = Ledger("a", clock, file)
    dead.span("run", "")
    dead.span("held", "node/n1")
    dead.close()
    for _ in range(8):
        clock()
    resumed = Ledger("a", clock, file)
    with resumed.span("run", ""), resumed.span("held", "node/n2"):
        pass
    resumed.close()
    assert read(file) == [
        Interval("a", "run", "", 0, 1, open_ended=True),
        Interval("a", "held", "node/n1", 1, 1, open_ended=True),
        Interval("a", "held", "node/n2", 11, 12),
        Interval("a", "run", "", 10, 13),
    ]


def test_seconds_of_an_interval() -> None:
    assert Interval("a", "run", "", 1.5, 4).seconds == 2.5


def test_a_driver_that_goes_on_after_a_torn_line_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    dead = Ledger("job", iter(range(10)).__next__, file)
    dead.span("run", "driver")
    dead.span("held", "node/n1")
    dead.close()
    with file.open("a") as torn:
        torn.write('{"t": 2, "id": 3, "jo')
    alive = Ledger("job", iter(range(10, 20)).__next__, file)
    alive.span("run", "driver").close()
    alive.close()
    assert [(span.what, span.start, span.end) for span in read(file)] == [
        ("run", 0, 1),
        ("held", 1, 1),
        ("run", 10, 11),
    ]


def test_a_ledger_that_cannot_be_written_does_not_stop_the_run() -> None:
    ledger = Ledger("job", lambda: 0.0, Path("/dev/full"))
    ledger.span("run", "driver").close()
    ledger.close()
    assert ledger.error is not None
