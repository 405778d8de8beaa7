from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.clusters.slurm import queue
from qtide.backends.clusters.slurm.accounting import SacctRecord, parse_records
from qtide.backends.clusters.slurm.commands import SlurmFailed
from qtide.backends.clusters.slurm.queue import QueueEntry, parse, plain_state
from qtide.core.resources import NodeKind


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


MARK = "0123456789abcdef"
NAMES = (
    *("job", "shown", "state", "uid", "nodes", "start", "end", "reason", "names", "gres"),
    *("licences", "account", "comment"),
)
PLAIN = (
    *("7", "7", "RUNNING", "1000", "2", "1794777527", "1794781127", "None", "c[1-2]", "N/A"),
    *("(null)", "physics", "qtide:vm:4026531836:812:99"),
)


def changed(**fields: str) -> tuple[str, ...]:
    return tuple((dict(zip(NAMES, PLAIN, strict=True)) | fields).values())


def printed(*records: tuple[str, ...]) -> str:
    return "".join("".join(MARK + field for field in record) + "\n" for record in records)


def parsed(*records: tuple[str, ...]) -> list[QueueEntry]:
    return list(parse(printed(*records), MARK))


def test_a_job_as_squeue_prints_it() -> None:
    assert parsed(PLAIN) == [
        QueueEntry(
            job=7,
            state="RUNNING",
            nodes=2,
            start=1794777527.0,
            end=1794781127.0,
            leader=7,
            uid=1000,
            reason="None",
            names="c[1-2]",
            gres="N/A",
            licences="(null)",
            account="physics",
            comment="qtide:vm:4026531836:812:99",
        )
    ]


def test_what_is_not_known_yet() -> None:
    (job,) = parsed(changed(state="PENDING", start="N/A", end="N/A", names="", account="(null)"))
    assert (job.start, job.end, job.names, job.account, job.holds) == (None, None, "", "", False)


def test_parts_and_elements() -> None:
    jobs = parsed(
        changed(job="3", shown="3+0"),
        changed(job="4", shown="3+1"),
        changed(job="6", shown="5_1"),
        changed(job="5", shown="5_[2-9%1]", state="PENDING"),
    )
    assert [(each.job, each.leader) for each in jobs] == [(3, 3), (4, 3), (6, 6), (5, 5)]


@given(text=st.text())
def test_whatever_a_user_writes_moves_no_other_field(text: str) -> None:
    first, second = parsed(changed(account=text, comment=text), changed(job="8", uid="1001"))
    assert (first.job, first.uid, first.gres) == (7, 1000, "N/A")
    assert (second.job, second.uid) == (8, 1001)


@given(cut=st.integers(min_value=len(MARK), max_value=len(printed(PLAIN)) - len(PLAIN[-1]) - 2))
def test_an_answer_that_was_cut_short_is_none(cut: int) -> None:
    with pytest.raises(SlurmFailed, match="cut short"):
        list(parse(printed(PLAIN)[:cut], MARK))


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        (QueueEntry(1, "RUNNING", 3, 100.0, 500.0), 30.0),
        (QueueEntry(1, "COMPLETED", 3, 100.0, 105.0), 15.0),
        (QueueEntry(1, "COMPLETING", 3, 100.0, 105.0), 15.0),
        (QueueEntry(1, "PENDING", 3, 100.0, 105.0), 0.0),
        (QueueEntry(1, "CANCELLED", 0, None, 105.0), 0.0),
    ],
)
def test_node_seconds_of_a_job(entry: QueueEntry, seconds: float) -> None:
    assert entry.node_seconds(now=110.0) == seconds


def test_nodes_that_take_no_work_do_not_count() -> None:
    text = (
        "compute*|idle|2|112|256000|(null)|2\ncompute*|down*|1|112|256000|(null)|2\n"
        "compute*|mixed|4|96+|1024+|gpu:a100:4(S:0-1),gpu:2,qpu:1|1\n"
        "quantum|drained|1|4|1|qpu:2|1\nquantum|allocated|1|4|1|qpu:2|1\n"
        "long|fail|3|4|1|(null)|1\nlong|completing|1|4|1|gpu:2(S:0)|0\n"
    )
    assert list(queue.parse_partitions(text)) == [
        (NodeKind("compute", 2, 112, 0, 256000 * 2**20, 2), True),
        (NodeKind("compute", 4, 96, 6, 2**30, 1), True),
        (NodeKind("quantum", 1, 4, 0, 2**20), False),
        (NodeKind("long", 1, 4, 2, 2**20), False),
    ]


def test_records_as_sacct_prints_them() -> None:
    text = (
        "3|1700000010|10|2|billing=9,cpu=4,gres/gpu=1,mem=2G,node=2\n4|1700000005|5|1|\n"
        "5|1700000000|0|0|\n6|Unknown|7|3|cpu=3\n\nnot a record\n"
    )
    assert list(parse_records(text)) == [
        SacctRecord(3, 20.0, 1700000010.0, {"billing": 90.0, "cores": 40.0, "gpus": 10.0}),
        SacctRecord(4, 5.0, 1700000005.0),
        SacctRecord(6, 21.0, None, {"cores": 21.0}),
    ]
