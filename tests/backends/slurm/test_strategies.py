from __future__ import annotations

from pathlib import Path

import pytest

from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.clusters.slurm.mark import qpu_name
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.profile import profile
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.programs.program import located
from qtide.programs.replay import ReplayStep
from qtide.runs.driver import Outcome, drive, play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
from tests.backends.slurm.stage import Stage
from tests.core.invariant import check

SHAPE = """
iterations = 2
[[phase]]
tasks = [0.10, 0.05, 0.05]
[[phase]]
quantum = 0.1
[[phase]]
tasks = [0.05]
"""
IMPOSSIBLE = CompanionOptions(constraint="no-such-feature")
SLACK = 2.0
"""Slurm may grant a node before we hear that it took it back; on a slow machine, long before."""


def unheard(_: str, __: ReplayStep, ___: float) -> None:
    """Ignore progress."""


def spec(folder: Path, strategy: str, cluster: str) -> Spec:
    shape = folder / "shape.toml"
    shape.write_text(SHAPE)
    words = [str(shape)]
    return Spec(located("synthetic"), words, strategy, cluster, options={"expand_timeout": 0.2})


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_runs_on_slurm_end_as_in_the_simulation(stage: Stage, strategy: str) -> None:
    wanted = spec(stage.folder, strategy, "simulated")
    expected = play(RunFolder.create(stage.folder, "simulated", wanted), unheard)
    assert expected.error is None
    runs = [RunFolder.create(stage.folder, f"job-{n}", wanted) for n in range(2)]

    async def scene(cluster: SlurmCluster) -> list[Outcome]:
        qpu = EmulatedQpu(cluster.world, Annealer(), profile(wanted.qpu), slots=1)
        site = Site(cluster.world, cluster, qpu)
        return await cluster.world.all_of([drive(each, site, unheard) for each in runs])

    outcomes = stage.play(scene)
    assert [each.error for each in outcomes] == [None] * 2
    assert [each.value for each in outcomes] == [expected.value] * 2
    intervals = [span for each in runs for span in each.intervals()]
    assert {span.lane for span in intervals if span.what == "busy"} >= {"node/c1", "qpu/annealer"}
    assert check(intervals, nodes=3, slots=1, slack=SLACK) == []


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_a_qpu_that_slurm_admits_to_changes_no_result(stage: Stage, strategy: str) -> None:
    wanted = spec(stage.folder, strategy, "simulated")
    expected = play(RunFolder.create(stage.folder, "simulated", wanted), unheard)
    runs = [RunFolder.create(stage.folder, f"job-{n}", wanted) for n in range(2)]

    async def scene(cluster: SlurmCluster) -> list[Outcome]:
        site = Site(
            cluster.world, cluster, EmulatedQpu(cluster.world, Annealer(), profile(wanted.qpu))
        )
        return await cluster.world.all_of([drive(each, site, unheard) for each in runs])

    outcomes = stage.play(scene, CompanionOptions(qpu_by="gres"))
    assert [(each.error, each.value) for each in outcomes] == [(None, expected.value)] * 2
    intervals = [span for each in runs for span in each.intervals()]
    assert check(intervals, nodes=3, slots=2, slack=SLACK) == []  # the box has two
    asked = ("squeue", "-h", "--states=all", "--partition=quantum", "--format=%j")
    names = [
        qpu_name(JobContext(each.name, Ledger(each.name, float), each.values)) for each in runs
    ]
    jobs = [name for name in stage.slurm(*asked).split() if name in names]
    whole = strategy in ("static", "malleable")
    assert len(jobs) == (2 if whole else 4)  # one for a run, or one for each quantum phase


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_nodes_that_slurm_refuses_end_the_run_with_its_reason(stage: Stage, strategy: str) -> None:
    run = RunFolder.create(stage.folder, "job", spec(stage.folder, strategy, "simulated"))

    async def scene(cluster: SlurmCluster) -> Outcome:
        qpu = EmulatedQpu(cluster.world, Annealer(), profile(run.spec.qpu), slots=1)
        return await drive(run, Site(cluster.world, cluster, qpu), unheard)

    assert "Slurm refused the nodes" in str(stage.play(scene, IMPOSSIBLE).error)
