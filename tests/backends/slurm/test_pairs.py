"""Two drivers on one small Slurm: neither waits forever for what the other one holds.

Each has its own connection, site and QPU. In benchmarks/pairs.py every strategy meets every
other one, and itself, by GRES and by licence, as processes; here are as many as there is time for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Literal

import pytest

from qtide import box
from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.runs.driver import Outcome, drive
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import strategy_names
from tests.backends.slurm.fixtures import remove
from tests.backends.slurm.stage import Stage
from tests.bench import INSTANT
from tests.core.invariant import check

LIMIT = 120.0
"""Seconds after which a pair has hung; none comes near."""
SHAPE = """
iterations = 2
[[phase]]
tasks = [0.10, 0.05]
[[phase]]
quantum = 0.3
[[phase]]
tasks = [0.05]
"""
SLACK = 2.0
"""Slurm may grant a node before we hear that it took it back."""

Admission = Literal["gres", "licence"]
BY: Iterator[Admission] = cycle(("gres", "licence"))


@pytest.fixture(scope="module")
def small(packages: None) -> Iterator[Path]:
    """A box that is too small for two: two nodes, one QPU."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        yield Path(box.env(box.up(folder, nodes=2, qpus=1).folder)["SLURM_CONF"])
    finally:
        remove(folder)


async def driver(stage: Stage, number: int, strategy: str, admission: Admission) -> Outcome:
    """One of two that know nothing of each other."""
    (stage.folder / "shape.toml").write_text(SHAPE)
    words, options = [str(stage.folder / "shape.toml")], {"expand_timeout": 0.2}
    spec = Spec("synthetic", words, strategy, options=options)
    run = RunFolder.create(stage.folder / "runs", f"{strategy}-{number}", spec)
    async with AsyncExitStack() as stack:
        cluster = await stage.connect(CompanionOptions(qpu_by=admission))
        stack.push_async_callback(cluster.close)
        qpu = EmulatedQpu(stage.world, Annealer(), INSTANT)
        return await drive(run, Site(stage.world, cluster, qpu), lambda *_: None)


@pytest.mark.parametrize(
    ("one", "other", "admission"),
    [
        *(("elastic", other, by) for other, by in zip(strategy_names(), BY, strict=False)),
        ("static", "split", "gres"),
        ("split", "split", "licence"),
        ("malleable", "split", "gres"),
        ("malleable", "workflow", "licence"),
    ],
)
def test_two_drivers_get_along(
    small: Path, tmp_path: Path, one: str, other: str, admission: Admission
) -> None:
    """The heterogeneous job of one may wait for the very nodes that the other one keeps idle."""
    stage = Stage(small, tmp_path)
    pair = [driver(stage, number, name, admission) for number, name in enumerate((one, other))]
    outcomes = stage.world.run(stage.world.timeout(LIMIT, stage.world.all_of(pair)))
    assert [each.error for each in outcomes] == [None, None]
    assert outcomes[0].value == outcomes[1].value
    spans = [span for each in outcomes for span in each.run.intervals()]
    assert check(spans, nodes=2, slots=1, slack=SLACK) == []
    assert stage.slurm("squeue", "--noheader", "--format=%i %j %T") == ""
