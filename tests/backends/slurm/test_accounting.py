from __future__ import annotations

import os
from pathlib import Path

import pytest

from qtide import box
from qtide.backends.clusters.slurm.accounting import _from_queue, ends, usage
from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.mark import job_name
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.job import JobContext
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from tests.backends.slurm.stage import Stage, until


def hold(stage: Stage, job: JobContext) -> None:
    """Two companions: two nodes for longer than a second, and then one."""

    async def scene(cluster: SlurmCluster) -> None:
        two = await cluster.request(job, 2)
        await cluster.world.sleep(1.2)
        await two.release()
        await (await cluster.request(job, 1)).release()
        await (await cluster.request(stage.job("another"), 1)).release()

    stage.play(scene)


def test_slurm_s_records_say_what_a_run_held(empty: Path, tmp_path: Path) -> None:
    box.up(empty, nodes=2, accounting=True)
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job, slurm = stage.job(), Slurm(stage.conf)
    weights = "TRESBillingWeights=CPU=2.0,Mem=1.0G"
    stage.world.run(slurm.output("scontrol", "update", "partition=compute", weights))
    hold(stage, job)
    assert until(lambda: stage.world.run(usage(slurm, job)).companions == 2)
    found = stage.world.run(usage(slurm, job))
    assert found.source == "sacct"
    assert found.node_seconds >= 2
    spans = job.ledger.intervals()
    metrics = measure([*spans, Interval("job", "run", "driver", spans[0].start, spans[-1].end)])
    assert metrics.billing_held == pytest.approx(
        metrics.nodes_held * (2 * (os.cpu_count() or 1) + 1)
    )
    for unit in ("cores", "billing"):  # Slurm counts whole seconds
        charged, held = found.others[unit] / found.node_seconds, getattr(metrics, f"{unit}_held")
        assert charged == pytest.approx(held / metrics.nodes_held)
    known = stage.world.run(_from_queue(slurm, [f"--name={job_name(job)}"]))
    assert found.node_seconds == sum(each.node_seconds for each in known)
    assert found.ended == {each.job for each in known}
    numbers = {int(span.label) for span in job.ledger.intervals() if span.what == "held"}
    over = stage.world.run(ends(slurm, numbers))
    assert over == {each.job: each.end for each in known}
    assert numbers == over.keys()


def test_without_accounting_the_queue_is_asked(stage: Stage) -> None:
    job = stage.job()
    hold(stage, job)
    found = stage.world.run(usage(Slurm(stage.conf), job))
    assert (found.source, found.companions) == ("queue", 2)
    assert found.node_seconds >= 2
