"""An arena for property-based tests: random programs, clusters and faults, in virtual time."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from qtide.backends.clusters.simulated import Delays, Loss, SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.world.virtual import VirtualWorld
from qtide.runs.driver import Outcome, drive
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
from tests.bench import INSTANT
from tests.core.invariant import check
from tests.crowd import strangers
from tests.strategies.random_program import NODE, plans
from tests.strategies.views import sites

LIMIT = 1e6
"""Virtual seconds after which a run waits forever; no case comes near."""
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
class Drivers:
    """How many drivers the jobs are spread over, each with a view of its own; 0: one, as usual."""

    number: int = 0
    queue: bool = False
    """Whether leases wait in the same queue as nodes."""


@dataclass(frozen=True)
class Case:
    nodes: int
    slots: int
    strategies: list[str]
    """One per job."""
    plan: list[Any]
    faults: Faults
    seed: int | None
    favour: float = 0.5
    load: float = 0.0
    """The share of the nodes that strangers use."""
    drivers: Drivers = field(default_factory=Drivers)


delays = st.sampled_from([0.0, 0.0, 0.3, 4.0])
alone = st.just(Drivers())
several = st.builds(Drivers, number=st.integers(2, 4), queue=st.booleans())


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
def cases(draw: st.DrawFn, drivers: st.SearchStrategy[Drivers] = alone) -> Case:
    nodes, strategy = draw(st.integers(1, 5)), st.sampled_from(STRATEGIES.names())
    jobs = draw(st.sampled_from([1, 2, 2, 2, 3, 3, 3, 3, 4, 5, 8, 16]))
    return Case(
        nodes=nodes,
        slots=draw(st.integers(1, 3)),
        strategies=draw(st.lists(strategy, min_size=jobs, max_size=jobs)),
        plan=draw(plans(nodes)),
        faults=draw(faults(nodes)),
        seed=draw(st.none() | st.integers(0, 99)),
        favour=draw(st.sampled_from([0.0, 0.5, 1.0])),
        load=draw(st.sampled_from([0.0, 0.0, 0.5, 0.9])),
        drivers=draw(drivers),
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
    options = {"time_weight": case.favour}
    specs = [Spec(program, words, each, options=options) for each in case.strategies]
    return [RunFolder.create(root, f"job-{n}", spec) for n, spec in enumerate(specs)]


def play(
    runs: Sequence[RunFolder], case: Case, faults: Faults, until: float = LIMIT
) -> tuple[list[Outcome], SimulatedCluster]:
    """Let the jobs run at once; TimeoutError if their driver is to die at `until`."""
    world = VirtualWorld(case.seed)
    cluster = SimulatedCluster(
        world,
        case.nodes,
        faults.delays,
        faults.losses,
        unusable=faults.unusable.__contains__,
        kind=NODE,
    )
    places = _places(cluster, case, faults)
    GRAVEYARD.append(world)

    async def main() -> list[Outcome]:
        others = world.start(strangers(world, cluster, case.load, case.seed or 0))
        drives = [
            drive(run, places[n % len(places)], lambda *_: None) for n, run in enumerate(runs)
        ]
        outcomes = await world.all_of(drives)
        await world.cancel([others])
        # what strangers were given, and what came as a job ended, goes back as well
        await world.sleep(faults.delays.release + 1.0)
        await cluster.close()
        return outcomes

    outcomes = world.run(main(), until)
    GRAVEYARD.remove(world)
    assert len(cluster.granted) == 0
    return outcomes, cluster


def expected(root: Path, case: Case) -> Any:
    """The result on a cluster where nothing goes wrong and nobody else is."""
    usual = Case(case.nodes, 1, ["static"], case.plan, Faults(), None)
    outcomes, _ = play(create(root / "expected", usual), usual, usual.faults)
    return outcomes[0].value


def broken(runs: Sequence[RunFolder], case: Case) -> list[str]:
    """What is held twice, or more than there is."""
    spans = [span for run in runs for span in run.intervals()]
    devices = (
        [each for each in spans if each.lane.startswith("qpu/")] if case.drivers.number else []
    )
    rest = [each for each in spans if each not in devices]
    return check(rest, case.nodes, case.slots, kind=NODE)


def _places(cluster: SimulatedCluster, case: Case, faults: Faults) -> list[Site]:
    if case.drivers.number:
        return sites(cluster, case.drivers.number, case.slots, queue=case.drivers.queue)
    world, fails = cluster.world, faults.failing.__contains__
    return [Site(world, cluster, EmulatedQpu(world, Annealer(), INSTANT, case.slots, fails))]
