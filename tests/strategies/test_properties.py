"""What must always hold: random programs, clusters, strategies and faults, in virtual time."""

import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from qtide.backends.clusters.simulated import Delays, Loss
from qtide.programs.journal import Journal, records
from qtide.programs.replay import choice_of
from qtide.runs.driver import Outcome
from qtide.runs.folder import RunFolder
from tests.strategies.arena import Case, Faults, broken, cases, create, expected, folder, play
from tests.strategies.random_program import RAN

BEHIND_A_WIDE_TASK = Case(
    nodes=5,
    slots=1,
    strategies=["malleable", "static", *["workflow"] * 3, "malleable", "elastic", "malleable"],
    plan=[
        ["t", [["s", 5, 0.5], ["s", 2, 2.0], ["f", 7.5]]],
        ["s", 4, 0.0],
        ["t", [["q", 0.0], ["q", 1.0], ["q", 0.0]]],
    ],
    faults=Faults(
        [Loss(at=49.16754746109458, node="n5", back=20.146696033581417, answers=True)],
        frozenset({1}),
        Delays(grant=0.3, release=0.3),
        frozenset({2}),
    ),
    seed=21,
)
"""Tasks for two nodes and for one that asked for nodes behind one for five: nobody got on."""

LOST_WHILE_IT_STARTS_ANEW = Case(
    nodes=2,
    slots=1,
    strategies=["malleable"],
    plan=[["l", [0.0, 0.0, 0.1], 0.05], ["c", [0.0, 0.0, 0.0]]],
    faults=Faults([Loss(at=0.85, node="n1", back=None)], frozenset(), Delays(start=0.3)),
    seed=None,
)
"""A node was lost that had begun anew after a task over its limit: it started, but was not held."""

COUNTED_ON_WHAT_WAS_WITHDRAWN = Case(
    nodes=4,
    slots=2,
    strategies=[
        *["malleable"] * 2,
        "elastic",
        "malleable",
        "elastic",
        "workflow",
        "split",
        "elastic",
    ],
    plan=[
        ["t", [["s", 4, 0.0], ["c", [0.0, 0.0, 0.5, 0.1, 0.5]], ["f", 0.5]]],
        ["c", [0.0, 7.5, 0.5, 0.1, 0.5]],
    ],
    faults=Faults(
        [
            Loss(at=2.00001, node="n4", back=27.460083335721635, answers=True),
            Loss(at=2.4999870311246073, node="n3", back=2.4999870311246073),
            Loss(at=15.140635414644528, node="n3", back=0.15306356046862485, answers=True),
        ],
        frozenset(),
        Delays(release=0.3, withdraw=4.0),
        frozenset({1, 2, 5, 6, 9, 10, 11, 12}),
    ),
    seed=None,
    favour=1.0,
)
"""A task that had lost its node waited for requests that were being withdrawn."""


@given(cases())
def test_every_strategy_gives_the_same_result_and_holds_no_more_than_there_is(case: Case) -> None:
    healthy = Faults(delays=case.faults.delays)
    with folder() as root:
        runs = create(root, case)
        outcomes, cluster = play(runs, case, healthy)
        assert [outcome.error for outcome in outcomes] == [None] * len(runs)
        assert {repr(outcome.value) for outcome in outcomes} == {repr(expected(root, case))}
        assert broken(runs, case) == []
        assert cluster.expected_wait(case.nodes) == healthy.delays.grant  # every node is free


@example(BEHIND_A_WIDE_TASK)
@example(COUNTED_ON_WHAT_WAS_WITHDRAWN)
@example(LOST_WHILE_IT_STARTS_ANEW)
@given(cases())
def test_faults_leave_every_run_right_or_resumable(case: Case) -> None:
    with folder() as root:
        runs = create(root, case)
        right = expected(root, case)
        outcomes, _ = play(runs, case, case.faults)
        assert broken(runs, case) == []
        failed = [outcome.run for outcome in outcomes if outcome.error is not None]
        assert all(outcome.value == right for outcome in outcomes if outcome.error is None)
        for run in failed:
            assert run.state == "failed"
            again, _ = play([run], case, Faults())
            assert (again[0].error, again[0].value) == (None, right)


@given(cases(), st.floats(0, 100), st.integers(0, 30))
def test_a_killed_driver_resumes_where_its_journal_ends(
    case: Case, death: float, torn: int
) -> None:
    """What a kill leaves is the journal as it is on the disk at that moment, perhaps torn."""
    with folder() as root:
        runs = create(root, case)
        right = expected(root, case)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never ended
            with suppress(TimeoutError):
                play(runs, case, case.faults, until=death)
        for run in runs:
            resumed, journaled = _resume(root, run, case, torn)
            assert (resumed.error, resumed.value) == (None, right)
            assert journaled.isdisjoint(RAN)


def _resume(root: Path, run: RunFolder, case: Case, torn: int) -> tuple[Outcome, set[str]]:
    copy = RunFolder(root / "copies" / run.name / run.name)  # nothing to learn from beside it
    shutil.copytree(run.path, copy.path)
    if copy.journal.exists():
        data = copy.journal.read_bytes()
        copy.journal.write_bytes(data[: max(0, len(data) - torn)])
    journal = Journal(copy.journal, "planned")
    journaled = set(journal._records)
    journal.close()
    chosen = _choices(copy)
    RAN.clear()
    outcomes, _ = play([copy], case, Faults())
    later = _choices(copy)
    kept = {key for key, choice in chosen.items() if later[key] == choice}
    turned = {key for key in later if "had not begun" in later[key]["why"]}
    assert chosen.keys() <= kept | turned
    return outcomes[0], journaled


def _choices(run: RunFolder) -> dict[str, Any]:
    """What was chosen for payloads that have a classical equivalent."""
    found = records(run.journal).items()
    return {key: record.outcome for key, record in found if key.startswith(choice_of(""))}
