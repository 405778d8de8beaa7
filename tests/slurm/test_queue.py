from __future__ import annotations

import pytest

from qtide.slurm.accounting import parse_records
from qtide.slurm.queue import Entry, parse_jobs, parse_partitions, plain_state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("RUNNING", "RUNNING"),
        ("CANCELLED by 0", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("NODE_FAIL", "NODE_FAIL"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("COMPLETING,CANCELLED", "COMPLETING"),
        ("completing", "COMPLETING"),
        ("", "UNKNOWN"),
    ],
)
def test_states_lose_their_suffixes(text: str, state: str) -> None:
    assert plain_state(text) == state


def test_jobs_as_squeue_prints_them() -> None:
    text = (
        "7|RUNNING|2|1794777527|1794781127|None|c[1-2]|qtide:vm:4026531836:812:99\n"
        "8|PENDING|1|N/A|N/A|Resources||\n"
        "9|CANCELLED|1|1794777500|1794777510|None|c1|a|b\n"
    )
    assert list(parse_jobs(text)) == [
        Entry(
            7,
            "RUNNING",
            2,
            1794777527.0,
            1794781127.0,
            "None",
            "c[1-2]",
            "qtide:vm:4026531836:812:99",
        ),
        Entry(8, "PENDING", 1, None, None, "Resources", "", ""),
        Entry(9, "CANCELLED", 1, 1794777500.0, 1794777510.0, "None", "c1", "a|b"),
    ]


def test_a_comment_with_a_newline_makes_no_job() -> None:
    torn = "7|RUNNING|2|1|2|None|c1|torn\na|remark|of|a|user|with|many|bars\n"
    text = torn + "12_[3-4]|PENDING|1|a|b|c||d\n"
    assert [each.job for each in parse_jobs(text)] == [7]


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        (Entry(1, "RUNNING", 3, 100.0, 500.0), 30.0),
        (Entry(1, "COMPLETED", 3, 100.0, 105.0), 15.0),
        (Entry(1, "PENDING", 3, 100.0, 105.0), 0.0),
        (Entry(1, "CANCELLED", 0, None, 105.0), 0.0),
    ],
)
def test_node_seconds_of_a_job(entry: Entry, seconds: float) -> None:
    assert entry.node_seconds(now=110.0) == seconds


def test_nodes_that_take_no_work_do_not_count() -> None:
    text = (
        "compute*|idle|2\ncompute*|down*|1\ncompute*|mixed|4\nquantum|drained|1\n"
        "quantum|allocated|1\nlong|fail|3\nlong|completing|1\n"
    )
    assert list(parse_partitions(text)) == [
        ("compute", True, 2),
        ("compute", True, 4),
        ("quantum", False, 1),
        ("long", False, 1),
    ]


def test_records_as_sacct_prints_them() -> None:
    text = (
        "3|COMPLETED|10|2|2\n4|CANCELLED by 0|5|1|1\n5|CANCELLED by 1000|0|4|0\n"
        "6|RUNNING|7|3|3\n7|NODE_FAIL|2|1|1\n\nnot a record\n"
    )
    assert list(parse_records(text)) == [20.0, 5.0, 21.0, 2.0]


def test_the_parts_of_a_heterogeneous_job_count_as_that_job() -> None:
    text = "7+0|RUNNING|2|1|2|None|c[1-2]|\n7+1|RUNNING|1|1|2|None|q1|\n"
    assert [(each.job, each.names) for each in parse_jobs(text)] == [(7, "c[1-2]"), (7, "q1")]
