"""Small ledgers for the tests: made by hand, or random but valid."""

from hypothesis import settings
from hypothesis import strategies as st

from qtide.core.ledger import Interval
from qtide.core.metrics import Panel, measure
from qtide.interfaces.report.run_report import Group

STRATEGIES = ("static", "malleable", "workflow", "split", "elastic")


def two_jobs() -> list[Interval]:
    """Job a runs from 0 to 10 on two nodes, job b from 4 to 14 on one; they share the QPU."""
    return [
        Interval("a", "run", "", 0, 10),
        Interval("a", "held", "node/n1", 0, 10),
        Interval("a", "held", "node/n2", 0, 4),
        Interval("a", "busy", "node/n1", 0, 3, "cluster"),
        Interval("a", "busy", "node/n2", 1, 2, "cluster"),
        Interval("a", "phase", "classical", 0, 3, "cluster"),
        Interval("a", "phase", "quantum", 3, 8, "solve"),
        Interval("a", "held", "vqpu/0", 3, 8),
        Interval("a", "busy", "qpu/q", 4, 8, "qubo"),
        Interval("b", "run", "", 4, 14),
        Interval("b", "wait", "nodes", 4, 5),
        Interval("b", "held", "node/n2", 5, 14),
        Interval("b", "busy", "node/n2", 5, 7, "cluster"),
        Interval("b", "wait", "qpu", 7, 8),
        Interval("b", "phase", "quantum", 7, 11, "solve"),
        Interval("b", "held", "vqpu/0", 8, 11),
        Interval("b", "busy", "qpu/q", 8, 11, "qubo"),
    ]


def panel(strategy: str, intervals: list[Interval], jobs: tuple[str, ...] = ("a", "b")) -> Panel:
    return Panel(strategy, jobs, intervals, measure(intervals))


def groups() -> list[Group]:
    """All strategies with one job and with two; later strategies are faster."""
    alone = [each for each in two_jobs() if each.job == "a"]
    return [
        Group(1, tuple(panel(name, alone, ("a",)) for name in STRATEGIES)),
        Group(2, tuple(panel(name, _slower(5 - i)) for i, name in enumerate(STRATEGIES))),
    ]


def _slower(factor: int) -> list[Interval]:
    return [
        Interval(i.job, i.what, i.lane, i.start * factor, i.end * factor, i.label)
        for i in two_jobs()
    ]


some = settings(max_examples=40, deadline=None)
"""Random ledgers take long to generate; a busy machine must not fail the test."""
lengths = st.lists(st.integers(1, 20), min_size=1, max_size=6)
jobs = st.sampled_from(["a", "b", "c"])


@st.composite
def valid_ledgers(draw: st.DrawFn) -> list[Interval]:
    """Up to four nodes and a QPU, passed from job to job; all jobs run all the time."""
    held: list[Interval] = []
    for lane in ("node/1", "node/2", "node/3", "node/4", "vqpu/0")[-draw(st.integers(1, 5)) :]:
        at = 0
        for length in draw(lengths):
            held.append(Interval(draw(jobs), "held", lane, at, at + length))
            at += length + draw(st.integers(0, 3))
    busy = [_busy(each, draw(st.floats(0, 0.5))) for each in held]
    end = max(each.end for each in held)
    runs = [Interval(job, "run", "", 0, end) for job in ("a", "b", "c")]
    return draw(st.permutations([*runs, *held, *busy]))


def _busy(held: Interval, margin: float) -> Interval:
    lane = held.lane.replace("vqpu/0", "qpu/q")
    inset = margin * held.seconds
    return Interval(held.job, "busy", lane, held.start + inset, held.end - inset, "task")
