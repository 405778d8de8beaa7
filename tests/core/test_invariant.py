from hypothesis import assume, given
from hypothesis import strategies as st

from qtide.core.ledger import Interval
from tests.core.invariant import check
from tests.core.ledger_samples import some, two_jobs, valid_ledgers


def held(ledger: list[Interval], kind: str = "node/") -> list[Interval]:
    return [each for each in ledger if each.what == "held" and each.lane.startswith(kind)]


def test_a_valid_ledger_by_hand() -> None:
    assert check(two_jobs(), nodes=2, slots=1) == []


@some
@given(valid_ledgers())
def test_valid_ledgers_pass(ledger: list[Interval]) -> None:
    assert check(ledger, nodes=4, slots=1) == []


@some
@given(valid_ledgers(), st.data())
def test_a_second_holder_is_found(ledger: list[Interval], data: st.DataObject) -> None:
    assume(held(ledger))
    victim = data.draw(st.sampled_from(held(ledger)))
    thief = "b" if victim.job == "a" else "a"
    found = check([*ledger, victim._replace(job=thief)], nodes=4, slots=1)
    clashes = [each for each in found if each.startswith(f"{victim.lane} is held by")]
    assert any(thief in each.split() and " at once " in each for each in clashes)


@some
@given(valid_ledgers(), st.data())
def test_busy_without_a_hold_is_found(ledger: list[Interval], data: st.DataObject) -> None:
    assume(held(ledger))
    gone = data.draw(st.sampled_from(held(ledger)))
    busy = Interval(gone.job, "busy", gone.lane, gone.start, gone.end)
    found = check([*(each for each in ledger if each != gone), busy], nodes=4, slots=1)
    assert any("does not hold it" in each and gone.lane in each for each in found)


@some
@given(valid_ledgers(), st.data())
def test_two_payloads_at_once_are_found(ledger: list[Interval], data: st.DataObject) -> None:
    payloads = [each for each in ledger if each.lane == "qpu/q" and each.seconds > 0.1]
    assume(payloads)
    payload = data.draw(st.sampled_from(payloads))
    found = check([*ledger, payload._replace(label="another")], nodes=4, slots=1)
    assert any(each.startswith("qpu/q is busy with") for each in found)


@some
@given(valid_ledgers(), st.data())
def test_a_hold_beyond_the_run_is_found(ledger: list[Interval], data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(held(ledger, "")))
    rest = [each for each in ledger if (each.what, each.job) != ("run", victim.job)]
    short = Interval(victim.job, "run", "", 0, victim.end - 0.5)
    found = check([*rest, short], nodes=4, slots=1)
    assert any("does not run" in each and victim.lane in each for each in found)


def test_more_nodes_than_exist_are_found() -> None:
    assert check(two_jobs(), nodes=1, slots=1) == [
        "2 node lanes are held at 1e-09, but there are 1"
    ]


def test_more_slots_than_exist_are_found() -> None:
    ledger = [*two_jobs(), Interval("a", "held", "vqpu/1", 2, 9)]
    assert len(check(ledger, nodes=2, slots=1)) == 1
    assert check(ledger, nodes=2, slots=2) == []


def test_the_device_needs_a_slot() -> None:
    ledger = [each for each in two_jobs() if (each.job, each.lane) != ("b", "vqpu/0")]
    found = check(ledger, nodes=2, slots=1)
    assert found == ["qpu/q is busy for b from 8 to 11 while b does not hold it"]


def test_an_interval_that_ends_before_it_starts_is_found() -> None:
    assert len(check([*two_jobs(), Interval("a", "wait", "qpu", 3, 2)], nodes=2, slots=1)) == 1


def test_a_long_hold_clashes_with_each_short_one() -> None:
    spans = [("a", 0, 10), ("b", 1, 2), ("c", 3, 4)]
    ledger = [Interval(job, "held", "node/n", start, end) for job, start, end in spans]
    runs = [Interval(job, "run", "", 0, 10) for job in "abc"]
    assert check([*runs, *ledger], nodes=1, slots=0) == [
        "node/n is held by a and b at once from 1 to 2",
        "node/n is held by a and c at once from 3 to 4",
    ]


def test_slack_forgives_clocks_that_differ() -> None:
    early = [*two_jobs(), Interval("b", "held", "node/n2", 3.99, 5)]
    early.append(Interval("b", "run", "", 3, 5))
    assert check(early, nodes=2, slots=1, slack=0.02) == []
    assert len(check(early, nodes=2, slots=1)) == 1


def test_starting_without_a_hold_is_found() -> None:
    late = Interval("b", "starting", "node/n2", 4.5, 5.5)
    (found,) = check([*two_jobs(), late], nodes=2, slots=1)
    assert found == "node/n2 is starting for b from 4.5 to 5 while b does not hold it"
