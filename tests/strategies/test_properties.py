"""What must always hold: random programs, clusters, strategies and faults, in virtual time."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from qtide.clusters.simulated import Delays, Loss, SimulatedCluster
from qtide.devices.annealer import Annealer
from qtide.leases.emulated import EmulatedQpu
from qtide.ledger.invariant import check
from qtide.programs.journal import Journal
from qtide.runs.driver import Outcome, drive
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
from qtide.world.virtual import VirtualWorld
from tests.bench import INSTANT
from tests.strategies.random_program import RAN, plans

LIMIT = 1e5
GRAVEYARD: list[VirtualWorld] = []
"""Worlds whose driver died: kept, since collecting them would run their clean-up after all."""


@dataclass(frozen=True)
class Faults:
    losses: list[Loss] = field(default_factory=list)
    failing: frozenset[int] = frozenset()
    delays: Delays = field(default_factory=Delays)
    unusable: frozenset[int] = frozenset()
    """Which starts of agents fail."""


@dataclass(frozen=True)
class Case:
    nodes: int
    slots: int
    jobs: int
    strategies: list[str]
    plan: list[Any]
    faults: Faults
    seed: int | None
    favour: float


delays = st.sampled_from([0.0, 0.0, 0.3, 4.0])


@st.composite
def faults(draw: st.DrawFn, nodes: int) -> Faults:
    loss = st.builds(
        Loss,
        at=st.floats(0, 60),
        node=st.integers(1, nodes).map(lambda number: f"n{number}"),
        back=st.none() | st.floats(0, 50),
        answers=st.booleans(),
    )
    return Faults(
        draw(st.lists(loss, max_size=3)),
        draw(st.frozensets(st.integers(1, 6), max_size=2)),
        Delays(*(draw(delays) for _ in range(4))),
        draw(st.frozensets(st.integers(1, 12), max_size=8)),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes, jobs = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    strategy = st.sampled_from(STRATEGIES.names())
    return Case(
        nodes=nodes,
        slots=draw(st.integers(1, 3)),
        jobs=jobs,
        strategies=draw(st.lists(strategy, min_size=jobs, max_size=jobs)),
        plan=draw(plans(nodes)),
        faults=draw(faults(nodes)),
        seed=draw(st.none() | st.integers(0, 99)),
        favour=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )


@contextmanager
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def create(root: Path, case: Case) -> list[RunFolder]:
    words = [json.dumps(case.plan)]
    program = "tests.strategies.random_program:planned"
    specs = [
        Spec(program, words, each, options={"favour": case.favour}) for each in case.strategies
    ]
    return [RunFolder.create(root, f"job-{n}", spec) for n, spec in enumerate(specs)]


def play(
    runs: list[RunFolder], case: Case, faults: Faults, until: float = LIMIT
) -> tuple[list[Outcome], SimulatedCluster]:
    """Let the jobs run at once; TimeoutError if their driver is to die at `until`."""
    world = VirtualWorld(case.seed)
    cluster = SimulatedCluster(
        world,
        case.nodes,
        faults.delays,
        faults.losses,
        unusable=faults.unusable.__contains__,
    )
    qpu = EmulatedQpu(world, Annealer(), INSTANT, case.slots, faults.failing.__contains__)
    site = Site(world, cluster, qpu)
    GRAVEYARD.append(world)

    async def main() -> list[Outcome]:
        outcomes = await world.all_of([drive(run, site, lambda *_: None) for run in runs])
        await cluster.close()
        return outcomes

    outcomes = world.run(main(), until)
    GRAVEYARD.remove(world)
    assert len(cluster.granted) == 0
    return outcomes, cluster


def expected(root: Path, case: Case) -> Any:
    """The result on a cluster where nothing goes wrong and nobody else is."""
    alone = Case(case.nodes, 1, 1, ["static"], case.plan, Faults(), None, 0.5)
    outcomes, _ = play(create(root / "expected", alone), alone, alone.faults)
    return outcomes[0].value


def broken(runs: list[RunFolder], case: Case) -> list[str]:
    spans = [span for run in runs for span in run.intervals()]
    return check(spans, case.nodes, case.slots)


@given(cases())
def test_every_strategy_gives_the_same_result_and_holds_no_more_than_there_is(case: Case) -> None:
    healthy = Faults(delays=case.faults.delays)
    with folder() as root:
        runs = create(root, case)
        outcomes, cluster = play(runs, case, healthy)
        assert [outcome.error for outcome in outcomes] == [None] * case.jobs
        assert {repr(outcome.value) for outcome in outcomes} == {repr(expected(root, case))}
        assert broken(runs, case) == []
        assert cluster.expected_wait(case.nodes) == healthy.delays.grant  # every node is free


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
                play(runs, case, Faults(delays=case.faults.delays), until=death)
        for run in runs:
            resumed, journaled = _resume(root, run, case, torn)
            assert (resumed.error, resumed.value) == (None, right)
            assert journaled.isdisjoint(RAN)


def _resume(root: Path, run: RunFolder, case: Case, torn: int) -> tuple[Outcome, set[str]]:
    copy = RunFolder(root / f"{run.name}-copy")
    shutil.copytree(run.path, copy.path)
    if copy.journal.exists():
        data = copy.journal.read_bytes()
        copy.journal.write_bytes(data[: max(0, len(data) - torn)])
    journal = Journal(copy.journal, "planned")
    journaled = set(journal._records)
    journal.close()
    RAN.clear()
    outcomes, _ = play([copy], case, Faults())
    return outcomes[0], journaled
