"""A payload or its classical equivalent: which one runs under every strategy, in virtual time."""

from math import inf
from pathlib import Path
from typing import Any

import pytest

from qtide import classical, pretend, program, quantum, task, together
from qtide.backends.payloads.payload import Burst
from qtide.core.ledger import notes
from qtide.programs.journal import Journal
from qtide.programs.phase import Quantum
from qtide.programs.program import Program
from qtide.programs.replay import CandidateChoice, Choices, Replay
from qtide.strategies.strategy import GRACE, STRATEGIES, Prospects, strategy
from tests.bench import Bench
from tests.strategies.arena import GRAVEYARD

CALLS: list[float] = []
NAMES = STRATEGIES.names()


def solve(seconds: float, answer: Any) -> Any:
    CALLS.append(seconds)
    pretend(seconds)
    return answer


def either(qpu: float, node: float, patience: float | None = None) -> Quantum:
    return quantum(Burst(qpu, "it"), otherwise=task(solve, node, "it"), patience=patience)


@program
async def once(qpu: float = 10.0, node: float = 10.0, patience: float | None = None) -> Any:
    before = await task(solve, 1.0, "before")
    found = await either(qpu, node, patience)
    return [before, found, await task(solve, 1.0, "after")]


RESULT = ["before", "it", "after"]


class Played:
    """One lifetime of a driver, beside a job that keeps the device for a while."""

    def __init__(self, bench: Bench, name: str, run: Program, *args: Any, **terms: Any) -> None:
        self.bench = bench
        self._crowd: float = terms.pop("crowd", 0.0)
        self._until: float = terms.pop("until", 1e6)
        self._name, self._program, self._args = name, run, args
        self.journal = Journal(bench.folder / f"journal-{name}", run.name)
        CALLS.clear()
        GRAVEYARD.append(bench.world)  # its driver may be killed
        try:
            self.result = bench.run(self._main(), self._until)
        finally:
            self.choices = Choices(self.journal)
            self.choice = self.choices.find("2")
            self.journal.close()

    async def _main(self) -> Any:
        bench = self.bench
        others = bench.world.start(self._keep_busy())
        performer = strategy(self._name, bench.assignment(nodes=2), {})
        replay = Replay(bench.world, performer, self.journal, performer.job)
        try:
            await performer.open()
            return await replay.play(self._program(*self._args))
        finally:
            await performer.close()
            await bench.world.cancel([others])

    async def _keep_busy(self) -> None:
        if self._crowd:
            lease = await self.bench.qpu.lease(self.bench.job("other"))
            await lease.run(Burst(self._crowd), None, 0)

    @property
    def phases(self) -> list[tuple[str, str]]:
        own = self.bench.jobs[0].ledger.intervals()
        spans = sorted((span for span in own if span.what == "phase"), key=lambda span: span.start)
        return [(span.lane, span.label) for span in spans]


def chosen(played: Played) -> str | None:
    return played.choice.chosen if played.choice else None


@pytest.mark.parametrize("name", NAMES)
def test_the_qpu_is_used_if_it_should_begin_in_time(tmp_path: Path, name: str) -> None:
    played = Played(Bench(tmp_path, slots=2), name, once, 10.0, 10.0, 60.0, crowd=50.0)
    assert (played.result, chosen(played), CALLS) == (RESULT, "qpu", [1.0, 1.0])
    assert played.phases[1] == ("quantum", "Burst")


@pytest.mark.parametrize("name", NAMES)
def test_otherwise_the_task_runs_on_a_node_and_everybody_hears_why(
    tmp_path: Path, name: str
) -> None:
    played = Played(Bench(tmp_path, slots=2), name, once, 10.0, 7.0, 60.0, crowd=500.0)
    assert (played.result, chosen(played), CALLS) == (RESULT, "task", [1.0, 7.0, 1.0])
    assert played.phases[1] == ("classical", "solve instead of Burst")
    ledger = next(job.ledger for job in played.bench.jobs if job.name == "job")
    told = next(each for each in notes(ledger.events) if each.lane == "phase/2")
    assert told.what == "chose the task"
    assert told.why == "the QPU should begin in 499.0 s, and may in 60 s"
    assert played.bench.world.now() < 60


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_keeps_its_choice(tmp_path: Path, name: str) -> None:
    with pytest.raises(TimeoutError):
        Played(Bench(tmp_path, slots=2), name, once, 10.0, 7.0, 5.0, crowd=500.0, until=4.0)
    again = Played(Bench(tmp_path), name, once, 10.0, 7.0, 5.0)
    assert (again.result, chosen(again), CALLS) == (RESULT, "task", [7.0, 1.0])
    for path in tmp_path.glob("journal-*"):
        path.unlink()
    with pytest.raises(TimeoutError):
        Played(Bench(tmp_path), name, once, 10.0, 7.0, 5.0, until=4.0)
    again = Played(Bench(tmp_path, slots=2), name, once, 10.0, 7.0, 5.0, crowd=9.0)
    assert (again.result, chosen(again), CALLS) == (RESULT, "qpu", [1.0])


@pytest.mark.parametrize("name", NAMES)
def test_a_qpu_that_fails_is_done_without(tmp_path: Path, name: str) -> None:
    played = Played(Bench(tmp_path, fails=lambda _: True), name, once, 10.0, 7.0, 5.0)
    assert (played.result, CALLS) == (RESULT, [1.0, 7.0, 1.0])
    assert played.choice == CandidateChoice("task", "the instant QPU failed on its payload 3")
    assert played.phases[1:3] == [("quantum", "Burst"), ("classical", "solve instead of Burst")]


@pytest.mark.parametrize("name", NAMES)
def test_a_payload_that_the_device_refuses_is_solved_by_the_task(tmp_path: Path, name: str) -> None:
    @program
    async def refused() -> Any:
        return [0, await quantum("nothing that a QPU takes", otherwise=task(solve, 1.0, "it"))]

    played = Played(Bench(tmp_path), name, refused)
    assert (played.result, CALLS) == ([0, "it"], [1.0])
    kept = played.choices.find("1")
    assert kept is not None and "nothing that" not in kept.why and kept.chosen == "task"
    assert not played.bench.qpu.announced  # nobody waits for what will not come


@pytest.mark.parametrize("name", ["elastic", "workflow"])
def test_a_slot_that_does_not_come_is_given_up_for_a_while(tmp_path: Path, name: str) -> None:
    """How long a job keeps its slot is not known: only the patience ends that wait."""

    @program
    async def twice() -> Any:
        await task(solve, 1.0, "before")
        return [await either(1.0, 2.0, 20.0), await either(1.0, 3.0, 20.0)]

    bench = Bench(tmp_path)

    async def held() -> None:
        lease = await bench.qpu.lease(bench.job("other"))
        await bench.world.sleep(1000.0)
        lease.release()

    others = bench.world.start(held())
    played = Played(bench, name, twice)
    others.cancel()
    assert (played.result, CALLS) == (["it", "it"], [1.0, 2.0, 3.0])
    assert played.choice == CandidateChoice("task", "the QPU had not begun within its 20 s")
    assert bench.world.now() == pytest.approx(1.0 + 20.0 + GRACE + 2.0 + 3.0)


def test_payloads_that_were_decided_on_count_before_they_are_handed_in(tmp_path: Path) -> None:
    @program
    async def pair() -> Any:
        return await together(either(30.0, 5.0, 10.0), either(30.0, 6.0, 10.0))

    played = Played(Bench(tmp_path, slots=2), "workflow", pair)
    assert (played.result, CALLS) == (["it", "it"], [6.0])
    assert not played.bench.qpu.announced


def test_whichever_should_end_first_once_both_are_known(tmp_path: Path) -> None:
    @program
    async def learning() -> Any:
        await classical(task(solve, 4.0, "it"))
        return [await either(3.0, 4.0), await either(5.0, 4.0)]

    played = Played(Bench(tmp_path), "static", learning)
    assert CALLS == [4.0, 4.0]
    first, second = played.choices.find("2"), played.choices.find("3")
    assert first == CandidateChoice("qpu", "the QPU should end in 3.0 s, the task in 4.0 s", 4.0)
    assert second == CandidateChoice("task", "the QPU should end in 5.0 s, the task in 4.0 s")


@pytest.mark.parametrize(
    ("prospects", "patience", "expected"),
    [
        (Prospects(0.0, 9.0, 0.0, None), None, "qpu"),  # the first time, on a QPU that is free,
        (Prospects(1.5, 9.0, 0.0, None), None, "task"),  # or is not
        (Prospects(inf, 1.0, 0.0, None), None, "task"),
        (Prospects(inf, 1.0, 0.0, 9.0), 1e9, "task"),
        (Prospects(5.0, 900.0, 0.0, 1.0), 5.0, "qpu"),
        (Prospects(5.1, 0.0, 0.0, 1e9), 5.0, "task"),
        (Prospects(1.0, 2.0, 1.0, 2.0), None, "qpu"),
        (Prospects(1.0, 2.0, 0.0, 2.0), None, "task"),
    ],
)
def test_the_rule(prospects: Prospects, patience: float | None, expected: str) -> None:
    assert prospects.choice(patience).chosen == expected


def test_only_what_makes_sense_is_accepted() -> None:
    equal = task(solve, 1.0, "it")
    with pytest.raises(TypeError, match=r"otherwise= takes task\(function, ...\), not"):
        quantum(Burst(1.0), otherwise=solve)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="patience= needs a task that runs instead"):
        quantum(Burst(1.0), patience=5.0)
    for wrong in (-1, inf, float("nan"), True, "5"):
        with pytest.raises(ValueError, match="patience= takes a number of seconds from 0 on"):
            quantum(Burst(1.0), otherwise=equal, patience=wrong)  # type: ignore[arg-type]
