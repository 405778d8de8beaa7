"""A QPU whose device computes in a worker: what its start and its death cost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dimod
import pytest

from qtide import quantum
from qtide.backends.clusters.simulated import SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.device import choice
from qtide.backends.devices.runner import Runner
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.backends.leases.qpu import QpuFailed
from qtide.backends.payloads.payload import Burst, PayloadRefused
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, strategy_names
from tests.bench import INSTANT, Bench
from tests.strategies.test_strategies import play

MODEL = dimod.BinaryQuadraticModel({"a": -1, "b": -2, "c": -1}, {"ab": 3, "bc": 3}, 0, "BINARY")


class Mortal(Runner):
    """Its worker is killed as it is given a payload, several times."""

    def __init__(self, deaths: int) -> None:
        super().__init__(choice("annealer"))
        self.deaths = deaths

    async def _exchange(self, *order: Any) -> Any:
        if self.deaths:
            self.deaths -= 1
            assert self.pid is not None
            os.kill(self.pid, signal.SIGSTOP)  # so that it cannot answer before it dies
            os.kill(self.pid, signal.SIGKILL)
        return await super()._exchange(*order)


class Slow(Runner):
    """Takes five seconds to start, and no time to answer."""

    def __init__(self, world: World) -> None:
        super().__init__(choice("annealer"))
        self._world = world
        self._up = False

    @property
    def is_ready(self) -> bool:
        return self._up

    async def ready(self) -> None:
        await self._world.sleep(5)
        self._up = True

    async def solve(self, payload: Any, shots: int, seed: int) -> Any:
        return Annealer().solve(payload, shots, seed)


def solved(folder: Path, strategy: str, deaths: int) -> Any:
    """What a run of one payload gives whose worker dies so often."""
    world, runner = RealWorld(), Mortal(deaths)
    qpu = EmulatedQpu(world, Annealer(), INSTANT, runner=runner)
    job = JobContext("job", Ledger("job", world.now), Values(folder / "there"))

    async def one() -> Any:
        return await quantum(MODEL)

    async def main() -> Any:
        site = Site(world, SimulatedCluster(world, 1), qpu)
        try:
            return await play(Assignment(site, job, 1), strategy, one())
        finally:
            await qpu.close()

    return world.run(main())


def test_a_payload_whose_worker_dies_runs_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def one() -> Any:
        return await quantum(MODEL)

    here = bench.run(play(bench.assignment(), "static", one()))
    assert solved(tmp_path, "workflow", 1) == here


def test_a_payload_that_kills_every_worker_fails(tmp_path: Path) -> None:
    with pytest.raises(QpuFailed, match="the process of the annealer ended while it had a payload"):
        solved(tmp_path, "static", 99)


@pytest.mark.parametrize("strategy", strategy_names())
def test_the_start_of_a_worker_is_no_payloads_time(tmp_path: Path, strategy: str) -> None:
    bench = Bench(tmp_path)
    bench.qpu = EmulatedQpu(bench.world, Annealer(), INSTANT, runner=Slow(bench.world))

    async def three() -> Any:
        return [await quantum(each) for each in (Burst(1, "burst"), MODEL, MODEL)]

    assert bench.run(play(bench.assignment(), strategy, three()))[0] == "burst"
    busy = [(each.start, each.end) for each in bench.intervals() if each.what == "busy"]
    assert busy == [(0, 1), (6, 6), (6, 6)]
    waits = [each.seconds for each in bench.intervals() if each.label == "the device"]
    assert waits == [5]


def test_shots_and_labels_are_checked_before_anything_is_queued(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(PayloadRefused, match="takes 1 to 1000000 shots, not 0"):
        bench.run(bench.qpu.check(MODEL, 0))
    odd = dimod.BinaryQuadraticModel({(0, 1): -1.0}, {}, 0, "BINARY")
    bench.run(bench.qpu.check(odd))  # computed here, so any label will do
    atoms = EmulatedQpu(bench.world, choice("atoms").device, INSTANT)
    with pytest.raises(PayloadRefused, match="a variable is a string or an integer"):
        bench.run(atoms.check(odd))
