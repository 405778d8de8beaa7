from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from qtide.backends.models.background import Generator
from qtide.backends.models.trace import read_swf, write_swf
from qtide.core.errors import UsageError

GOOD = "1 10 0 100 4 -1 -1 8 200 -1 1 7 -1 -1 -1 -1 -1 -1"
SPARSE = "2 5 0 100 4 -1 -1 -1 -1 -1 1 7 -1 -1 -1 -1 -1 -1"
HEADER = "; Version: 2.2\n; MaxNodes: 64\n"


def test_a_trace_is_read_in_the_order_of_submission(tmp_path: Path) -> None:
    file = tmp_path / "trace.swf.gz"
    file.write_bytes(gzip.compress(f"{HEADER}{GOOD}\n{SPARSE}\n".encode()))
    found = read_swf(file)
    assert (found.nodes, found.bad) == (64, ())
    assert found.trace.submit.tolist() == [5.0, 10.0]
    assert found.trace.nodes.tolist() == [4, 8]
    assert found.trace.limit.tolist() == [100.0, 200.0]


def test_bad_rows_are_named_and_skipped_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.swf"
    file.write_text(
        f"{HEADER}{GOOD}\n1 2 3\n{GOOD.replace('100', 'x')}\n{GOOD.replace('100', '-1')}\n"
    )
    found = read_swf(file)
    assert len(found.trace) == 1
    assert [line.partition(", ")[2] for line in found.bad] == [
        "line 4: it has 3 fields instead of 18",
        "line 5: could not convert string to float: 'x'",
        "line 6: its run time is not known",
    ]
    with pytest.raises(UsageError, match="line 4"):
        read_swf(file, strict=True)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    trace = Generator(jobs=500, seed=4).trace()
    write_swf(tmp_path / "trace.swf", trace, 64)
    found = read_swf(tmp_path / "trace.swf")
    assert found.nodes == 64 and len(found.trace) == 500
    assert found.trace.nodes.tolist() == trace.nodes.tolist()
    assert found.trace.run.tolist() == pytest.approx(trace.run.tolist())


def test_a_trace_that_is_not_there_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_swf(tmp_path / "none.swf")


def test_the_generator_gives_the_same_jobs_for_the_same_seed() -> None:
    one, two, other = (Generator(jobs=2000, seed=seed).trace() for seed in (1, 1, 2))
    assert one.run.tolist() == two.run.tolist() != other.run.tolist()
    assert (one.limit >= one.run).all() and one.nodes.max() <= 64


def test_people_submit_by_day_more_than_by_night() -> None:
    hour = (Generator(jobs=20_000, days=28).trace().submit % 86_400) // 3600
    assert (hour == 14).sum() > 3 * (hour == 4).sum()
