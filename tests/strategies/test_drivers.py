"""Several drivers on one cluster and one admission, none of which knows of the others."""

from hypothesis import given

from tests.strategies.arena import (
    Case,
    Faults,
    broken,
    cases,
    create,
    expected,
    folder,
    play,
    several,
)


@given(cases(several))
def test_no_driver_waits_forever_for_what_another_one_holds(case: Case) -> None:
    """Nodes, leases and both together; grants, cold starts and strangers take their time."""
    with folder() as root:
        runs = create(root, case)
        outcomes, cluster = play(runs, case, Faults(delays=case.faults.delays))
        assert [outcome.error for outcome in outcomes] == [None] * len(runs)
        assert {repr(outcome.value) for outcome in outcomes} == {repr(expected(root, case))}
        assert broken(runs, case) == []
        assert cluster.expected_wait(case.nodes) == case.faults.delays.grant  # every node is free


@given(cases(several))
def test_faults_of_the_site_leave_the_run_of_every_driver_right_or_resumable(case: Case) -> None:
    with folder() as root:
        runs = create(root, case)
        right = expected(root, case)
        outcomes, _ = play(runs, case, case.faults)
        assert broken(runs, case) == []
        assert all(each.value == right for each in outcomes if each.error is None)
        for run in (each.run for each in outcomes if each.error is not None):
            assert run.state == "failed"
            again, _ = play([run], case, Faults())
            assert (again[0].error, again[0].value) == (None, right)
