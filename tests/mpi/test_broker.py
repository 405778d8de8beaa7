"""Which clusters a malleable job can have, and what it says about one that gives no nodes."""

import asyncio
import sys
from pathlib import Path

import pytest

from qtide.backends.clusters.cluster import NodeRequest
from qtide.backends.clusters.kind import Setting, cluster_kind
from qtide.core.errors import UsageError
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.core.world.virtual import VirtualWorld
from qtide.mpi.broker import ProgramStart, RootRecord


def context(folder: Path) -> JobContext:
    return JobContext("job", Ledger("job", lambda: 0.0), Values(folder))


def test_a_command_runs_on_a_granted_node_with_its_variables(tmp_path: Path) -> None:
    async def main() -> int | None:
        cluster = await cluster_kind("local:1")[0].open(RealWorld(), Setting("1"))
        allocation = await cluster.grant(NodeRequest(context(tmp_path), 1))
        program = "import os, sys; sys.exit(int(os.environ['GIVEN']))"
        words = [sys.executable, "-c", program]
        process = await allocation.launch(allocation.nodes[0], words, {"GIVEN": "7"})
        code = await process.wait()
        await allocation.release()
        await cluster.close()
        return code

    assert asyncio.run(main()) == 7


def test_the_simulated_cluster_starts_no_commands(tmp_path: Path) -> None:
    kind, _ = cluster_kind("simulated")
    assert not kind.starts_commands
    world = VirtualWorld()

    async def main() -> None:
        cluster = await kind.open(world, Setting())
        allocation = await cluster.grant(NodeRequest(context(tmp_path), 1))
        await allocation.launch(allocation.nodes[0], ["true"], {})

    with pytest.raises(UsageError, match="does not start commands"):
        world.run(main())


def test_a_job_refuses_a_cluster_that_starts_no_commands(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local, slurm or slurm:PARTITION, not simulated"):
        RootRecord(tmp_path, "job", "simulated", 3, ProgramStart(["job"], list))
    assert list(tmp_path.iterdir()) == []


def test_a_job_may_have_more_nodes_than_the_local_default(tmp_path: Path) -> None:
    kind, _ = cluster_kind("local")
    cluster = asyncio.run(kind.open(RealWorld(), Setting(nodes=8)))
    assert cluster.size == 8
    named = asyncio.run(kind.open(RealWorld(), Setting("2")))
    assert named.size == 2


def test_nobody_waits_for_nodes_of_this_machine() -> None:
    assert cluster_kind("local")[0].others_waiting() == 0
