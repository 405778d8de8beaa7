"""An arena for property-based tests: random programs, clusters and faults, in virtual time."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from qtide.backends.clusters.cluster import Cluster, KindsCluster, Node, Work
from qtide.backends.clusters.simulated import Delays, Loss, SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.ledger import Interval
from qtide.core.resources import NodeKind, NodePart
from qtide.core.world.virtual import VirtualWorld
from qtide.runs.driver import Outcome, drive
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
from tests.bench import INSTANT
from tests.core.invariant import check
from tests.crowd import strangers
from tests.strategies.random_program import GPU_NODE, NODE, plans
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
    gpu_nodes: int = 0
    """How many nodes of a second kind there are."""
    needs: str = ""
    """What a task needs that says nothing; empty for a whole node."""

    @property
    def kinds(self) -> list[NodeKind]:
        usual = replace(NODE, count=self.nodes)
        return [usual, replace(GPU_NODE, count=self.gpu_nodes)] if self.gpu_nodes else [usual]


class Watched(SimulatedCluster):
    """Keeps an account of its own of who has what: no core, GPU or byte is given away twice."""

    def __init__(self, *terms: Any, **others: Any) -> None:
        super().__init__(*terms, **others)
        self.clashes: list[str] = []
        self._given: defaultdict[Node, dict[int, NodePart]] = defaultdict(dict)

    def send(self, node: Node, ticket: int, work: Work) -> None:
        kind = self.kind
        everything = NodePart(tuple(range(kind.cores)), tuple(range(kind.gpus)), kind.memory)
        given = {each: part for each, part in self._given[node].items() if each in node._attempts}
        given[ticket] = everything if work.slot is None else work.slot
        self._given[node] = given
        self.clashes += [f"{node.name}, {wrong}" for wrong in _overlaps(given, everything)]
        super().send(node, ticket, work)


def _overlaps(given: dict[int, NodePart], everything: NodePart) -> Iterator[str]:
    for name in ("cores", "gpus"):
        taken = sorted(chain.from_iterable(getattr(part, name) for part in given.values()))
        if len(set(taken)) < len(taken) or not {*taken} <= {*getattr(everything, name)}:
            yield f"{name}: {taken}"
    needed = sum(part.memory or 0 for part in given.values())
    if everything.memory is not None and needed > everything.memory:
        yield f"memory: {needed} of {everything.memory}"


delays = st.sampled_from([0.0, 0.0, 0.3, 4.0])
alone = st.just(Drivers())
several = st.builds(Drivers, number=st.integers(2, 4), queue=st.booleans())


@st.composite
def faults(draw: st.DrawFn, nodes: int, gpu_nodes: int = 0) -> Faults:
    names = [f"n{number + 1}" for number in range(nodes)]
    names += [f"gpu{number + 1}" for number in range(gpu_nodes)]
    loss = st.builds(
        Loss,
        at=st.floats(0, 60),
        node=st.sampled_from(names),
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
    gpu_nodes = draw(st.sampled_from([0, 0, 1, 2]))
    return Case(
        nodes=nodes,
        slots=draw(st.integers(1, 3)),
        strategies=draw(st.lists(strategy, min_size=jobs, max_size=jobs)),
        plan=draw(plans(nodes, kinds=gpu_nodes > 0)),
        faults=draw(faults(nodes, gpu_nodes)),
        seed=draw(st.none() | st.integers(0, 99)),
        favour=draw(st.sampled_from([0.0, 0.5, 1.0])),
        load=draw(st.sampled_from([0.0, 0.0, 0.5, 0.9])),
        drivers=draw(drivers),
        gpu_nodes=gpu_nodes,
        needs=draw(st.sampled_from(["", "", "cores=1", "cores=3,memory=3GB", "gpus=1"])),
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
    specs = [
        Spec(program, words, each, needs=case.needs, options=options) for each in case.strategies
    ]
    return [RunFolder.create(root, f"job-{n}", spec) for n, spec in enumerate(specs)]


def play(
    runs: Sequence[RunFolder], case: Case, faults: Faults, until: float = LIMIT
) -> tuple[list[Outcome], Cluster]:
    """Let the jobs run at once; TimeoutError if their driver is to die at `until`."""
    world = VirtualWorld(case.seed)
    clusters = [_watched(world, kind, faults) for kind in case.kinds]
    places = _places(clusters, case, faults)
    GRAVEYARD.append(world)

    async def main() -> list[Outcome]:
        seed = case.seed or 0
        others = [world.start(strangers(world, each, case.load, seed)) for each in clusters]
        drives = [
            drive(run, places[n % len(places)], lambda *_: None) for n, run in enumerate(runs)
        ]
        outcomes = await world.all_of(drives)
        await world.cancel(others)
        # what strangers were given, and what came as a job ended, goes back as well
        await world.sleep(faults.delays.release + 1.0)
        for each in clusters:
            await each.close()
        return outcomes

    try:
        outcomes = world.run(main(), until)
    finally:
        assert [wrong for each in clusters for wrong in each.clashes] == []
    GRAVEYARD.remove(world)
    assert not any(each.granted for each in clusters)
    return outcomes, clusters[0]


def _watched(world: VirtualWorld, kind: NodeKind, faults: Faults) -> Watched:
    of_gpu = kind.name == GPU_NODE.name
    losses = [each for each in faults.losses if each.node.startswith("gpu") == of_gpu]
    unusable = faults.unusable.__contains__
    return Watched(world, kind.count, faults.delays, losses, unusable=unusable, kind=kind)


def expected(root: Path, case: Case) -> Any:
    """The result on a cluster where nothing goes wrong and nobody else is."""
    usual = Case(case.nodes, 1, ["static"], case.plan, Faults(), None, gpu_nodes=case.gpu_nodes)
    outcomes, _ = play(create(root / "expected", usual), usual, usual.faults)
    return outcomes[0].value


def broken(runs: Sequence[RunFolder], case: Case) -> list[str]:
    """What is held twice, or more than there is."""
    spans = [span for run in runs for span in run.intervals()]
    devices = (
        [each for each in spans if each.lane.startswith("qpu/")] if case.drivers.number else []
    )
    rest = [each for each in spans if each not in devices]
    return [
        wrong
        for kind in case.kinds
        for wrong in check(_on(kind, rest), kind.count, case.slots, kind=kind)
    ]


def _on(kind: NodeKind, spans: Sequence[Interval]) -> list[Interval]:
    """Without what is on nodes of another kind."""
    other = "node/n" if kind.name == GPU_NODE.name else "node/gpu"
    return [each for each in spans if not each.lane.startswith(other)]


def _places(clusters: Sequence[SimulatedCluster], case: Case, faults: Faults) -> list[Site]:
    if case.drivers.number:
        return sites(clusters, case.drivers.number, case.slots, queue=case.drivers.queue)
    world, fails = clusters[0].world, faults.failing.__contains__
    qpu = EmulatedQpu(world, Annealer(), INSTANT, case.slots, fails)
    return [Site(world, KindsCluster(clusters) if case.gpu_nodes else clusters[0], qpu)]
