"""Random scripts in virtual time: under every strategy, with lost nodes and dead drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import as_completed
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import qtide
from qtide.clusters.simulated import SimulatedCluster
from qtide.devices.annealer import Annealer
from qtide.errors import PhaseError, QtideError
from qtide.leases.emulated import EmulatedQpu
from qtide.payloads.payload import Burst
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.sessions.session import Session
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
from qtide.world.virtual import VirtualWorld
from tests.bench import INSTANT
from tests.strategies.arena import GRAVEYARD, Faults, faults, folder

NODES = 3
seconds = st.floats(0, 20)
steps: st.SearchStrategy[tuple[str, list[float]]] = st.one_of(
    st.tuples(st.just("map"), st.lists(seconds, max_size=5)),
    st.tuples(st.just("submit"), st.lists(seconds, min_size=1, max_size=4)),
    st.tuples(st.just("beside"), st.lists(seconds, min_size=1, max_size=2)),
    st.tuples(st.just("qpu"), st.lists(seconds, min_size=1, max_size=1)),
    st.tuples(st.just("caught"), st.just([])),
)
scripts = st.lists(steps, min_size=1, max_size=6)
names = st.sampled_from(STRATEGIES.names())

CALLED: Counter[float] = Counter()
"""How often each call was made: its argument is unique in its script."""


DEAD: list[Session] = []
"""Kept, since collecting them would run their clean-up after all."""


class Died(Exception):
    """The driver is gone, without a chance to give anything back."""


def work(number: float, length: float) -> float:
    CALLED[number] += 1
    qtide.pretend(length)
    return number


def fail(number: float) -> float:
    CALLED[number] += 1
    raise ValueError(str(number))


def play(session: Session, script: list[Any], dies_at: int | None = None) -> list[Any]:
    """What the script finds; before one of its steps, it may die."""
    found: list[Any] = []
    for place, (kind, lengths) in enumerate(script):
        if place == dies_at:
            raise Died
        marks = [place + n / 10 for n in range(len(lengths))]
        match kind:
            case "map":
                found.append(list(session.map(work, marks, lengths)))
            case "submit":
                futures = [session.submit(work, *each) for each in zip(marks, lengths, strict=True)]
                found.append(sorted(each.result() for each in as_completed(futures)))
            case "beside":
                sent = session.qpu.submit(Burst(lengths[0], place))
                found.append([session.submit(work, marks[0], lengths[0]).result(), sent.result()])
            case "qpu":
                found.append(session.qpu.run(Burst(lengths[0], place)))
            case "caught":
                try:
                    session.submit(fail, float(place)).result()
                except ValueError as error:
                    found.append(str(error))
    return found


def expected(script: list[Any]) -> list[Any]:
    results: dict[str, Callable[[int, list[float]], Any]] = {
        "map": lambda place, marks: marks,
        "submit": lambda place, marks: marks,
        "beside": lambda place, marks: [marks[0], place],
        "qpu": lambda place, marks: place,
        "caught": lambda place, marks: str(float(place)),
    }
    return [
        results[kind](place, [place + n / 10 for n in range(len(lengths))])
        for place, (kind, lengths) in enumerate(script)
    ]


def opened(root: Path, strategy: str, troubles: Faults, seed: int | None) -> Session:
    """A named session on a site with these faults."""
    spec = Spec("script", strategy=strategy, cluster=f"simulated:{NODES}", session=True)
    run = RunFolder(root / "mine")
    if not run.path.exists():
        run = RunFolder.create(root, "mine", spec)
    spec.write(run.path / "run.json")
    world = VirtualWorld(seed)
    GRAVEYARD.append(world)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Site]:
        usable = troubles.unusable.__contains__
        cluster = SimulatedCluster(world, NODES, troubles.delays, troubles.losses, unusable=usable)
        fails = troubles.failing.__contains__
        qpu = EmulatedQpu(world, Annealer(), INSTANT, 1, fails)
        try:
            yield Site(world, cluster, qpu)
        finally:
            await cluster.close()

    def place() -> AbstractAsyncContextManager[Site]:
        return opening()

    return Session(run, world, place, named=True)


def given_back(root: Path) -> bool:
    return not any(span.open_ended for span in RunFolder(root / "mine").intervals())


@given(scripts, names, st.none() | st.integers(0, 99))
def test_every_strategy_finds_the_same(script: list[Any], strategy: str, seed: int | None) -> None:
    with folder() as root:
        with opened(root, strategy, Faults(), seed) as session:
            assert play(session, script) == expected(script)
        assert given_back(root)


@given(scripts, names, faults(NODES), names)
def test_lost_nodes_and_failing_qpus(
    script: list[Any], strategy: str, troubles: Faults, other: str
) -> None:
    """Results are right, or the script fails with a reason, gives all back, and can go on."""
    with folder() as root:
        try:
            with opened(root, strategy, troubles, None) as session:
                assert play(session, script) == expected(script)
        except (PhaseError, QtideError) as error:
            assert str(error)
        assert given_back(root)
        with opened(root, other, Faults(), None) as session:
            assert play(session, script) == expected(script)


@given(scripts, names, st.integers(0, 5), names)
def test_a_driver_that_dies_at_any_call(
    script: list[Any], strategy: str, dies_at: int, other: str
) -> None:
    """What had ended before is not called again."""
    CALLED.clear()
    with folder() as root:
        first = opened(root, strategy, Faults(), None).__enter__()
        DEAD.append(first)
        with suppress(Died):
            play(first, script, dies_at)
        first._journal.close()  # as the end of its process does
        before = Counter(CALLED)
        with opened(root, other, Faults(), None) as session:
            assert play(session, script) == expected(script)
        ended = {mark for mark in before if mark < len(script[:dies_at]) - 1}
        assert all(CALLED[mark] == before[mark] for mark in ended)
