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
from qtide.backends.clusters.simulated import SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import PhaseError, QtideError
from qtide.core.world.virtual import VirtualWorld
from qtide.interfaces.sessions.session import Session
from qtide.programs.journal import records
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
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


class Mortal(Session):
    """Dies as it makes a call, or as it waits for one."""

    dies_at = 0
    """How many of these it survives."""

    def _register(self, *args: Any) -> Any:
        self._live()
        return super()._register(*args)

    def before_wait(self, *args: Any) -> None:
        if self._state == "open":
            self._live()
        super().before_wait(*args)

    def bury(self) -> None:
        """Release the journal, as the end of its process does."""
        self._journal.close()

    def _live(self) -> None:
        self.dies_at -= 1
        if self.dies_at < 0:
            raise Died


def work(number: float, length: float) -> float:
    CALLED[number] += 1
    qtide.pretend(length)
    return number


def fail(number: float) -> float:
    CALLED[number] += 1
    raise ValueError(str(number))


def play(session: Session, script: list[Any]) -> list[Any]:
    """What the script finds."""
    found: list[Any] = []
    for place, (kind, lengths) in enumerate(script):
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


def opened(
    root: Path,
    strategy: str,
    troubles: Faults,
    seed: int | None = None,
    kind: type[Session] = Session,
) -> Session:
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

    return kind(run, world, place, named=True)


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


@given(scripts, names, st.integers(1, 20), names)
def test_a_driver_that_dies_at_any_call(
    script: list[Any], strategy: str, dies_at: int, other: str
) -> None:
    """What the journal has is not called again."""
    CALLED.clear()
    with folder() as root:
        mortal = opened(root, strategy, Faults(), kind=Mortal)
        assert isinstance(mortal, Mortal)
        mortal.dies_at = dies_at
        DEAD.append(mortal)
        with suppress(Died):
            play(mortal.__enter__(), script)
        mortal.bury()
        before = CALLED.total()
        kept = sum(
            each.asked.startswith("classical")
            for each in records(root / "mine" / "journal").values()
        )
        with opened(root, other, Faults()) as session:
            assert play(session, script) == expected(script)
        assert CALLED.total() - before == sum(map(calls_of, script)) - kept


def calls_of(step: tuple[str, list[float]]) -> int:
    kind, lengths = step
    return {"qpu": 0, "beside": 1, "caught": 1}.get(kind, len(lengths))
