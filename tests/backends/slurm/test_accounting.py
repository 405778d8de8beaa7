"""Slurm's own accounting: what a run held, and what a job used of a QPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide import box
from qtide.backends.clusters.slurm.accounting import _from_queue, ends, usage
from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.deployment import announce
from qtide.backends.clusters.slurm.mark import job_name
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.job import JobContext
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.service.local_service import LocalService
from tests.backends.slurm.fixtures import remove
from tests.backends.slurm.stage import Stage, until
from tests.service.admission.site import Site
from tests.service.admission.users import User


@pytest.fixture(scope="module")
def recorded(packages: None) -> Iterator[Site]:
    """A box with accounting, whose jobs call a service."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    folder.chmod(0o755)
    try:
        kinds = ["gpu:1,cores=4,gpus=2,memory=1GB"]
        service = "http://127.0.0.1:9"
        box.up(folder, nodes=2, kinds=kinds, accounting=True, auth="munge", service=service)
        yield Site(folder)
    finally:
        remove(folder)


def hold(stage: Stage, job: JobContext) -> None:
    """Two companions: two nodes for longer than a second, and then one."""

    async def scene(cluster: SlurmCluster) -> None:
        two = await cluster.request(job, 2)
        await cluster.world.sleep(1.2)
        await two.release()
        await (await cluster.request(job, 1)).release()
        await (await cluster.request(stage.job("another"), 1)).release()

    stage.play(scene)


def test_slurm_s_records_say_what_a_run_held(recorded: Site, tmp_path: Path) -> None:
    stage = Stage(recorded.conf, tmp_path)
    job, slurm = stage.job(), Slurm(stage.conf)
    weights = "TRESBillingWeights=CPU=2.0,Mem=1.0G"  # the box does not hand out memory
    stage.world.run(slurm.output("scontrol", "update", "partition=compute", weights))
    hold(stage, job)
    assert until(lambda: stage.world.run(usage(slurm, job)).companions == 2)
    found = stage.world.run(usage(slurm, job))
    assert found.source == "sacct"
    assert found.node_seconds >= 2
    spans = job.ledger.intervals()
    metrics = measure([*spans, Interval("job", "run", "driver", spans[0].start, spans[-1].end)])
    assert metrics.billing_held == pytest.approx(metrics.nodes_held * 2 * (os.cpu_count() or 1))
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


PARTS = """
import time

from qtide import classical, program, task


@program
async def parts():
    await classical(*(task(time.sleep, 1.5).needs(cores=1, gpus=1) for _ in range(2)))
"""


def test_slurm_s_records_count_cores_gpus_and_billing_of_parts(
    recorded: Site, tmp_path: Path
) -> None:
    """Slurm counts whole seconds, so what is compared is each unit per node-second."""
    stage = Stage(recorded.conf, tmp_path)
    weights = "TRESBillingWeights=CPU=1.0,GRES/gpu=10.0"
    stage.world.run(Slurm(stage.conf).output("scontrol", "update", "partition=gpu", weights))
    (tmp_path / "parts.py").write_text(PARTS)
    words = ("run", "parts.py", "--cluster", "slurm:gpu", "--share-nodes", "cores=2,gpus=1")

    def say(*words: str) -> Any:
        command = [sys.executable, "-m", "qtide", *words, "--json"]
        env = os.environ | box.env(recorded.folder)
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True)
        return json.loads(done.stdout)

    metrics = say(*words)["metrics"]
    assert until(lambda: say("show", "last")["slurm"]["nodes"]["missing"] == 0)
    found = say("show", "last")["slurm"]
    rates = {unit: each["charged"] / found["nodes"]["charged"] for unit, each in found.items()}
    assert rates == pytest.approx({"nodes": 1, "cores": 2, "gpus": 1, "billing": 12})
    for unit, rate in rates.items():
        assert metrics[f"{unit}_held"] == pytest.approx(rate * metrics["nodes_held"])


def test_without_accounting_the_queue_is_asked(stage: Stage) -> None:
    job = stage.job()
    hold(stage, job)
    found = stage.world.run(usage(Slurm(stage.conf), job))
    assert (found.source, found.companions) == ("queue", 2)
    assert found.node_seconds >= 2


PROGRAM = """
import qtide
from qtide.backends.payloads.payload import Burst
qpu = qtide.qpu()
for each in range(3):
    qpu.run(Burst(0.05, each))
"""


def test_a_job_s_own_record_says_what_it_used_of_the_qpu(recorded: Site, tmp_path: Path) -> None:
    """Although the service is killed when the job ends, and writes it in its next life."""
    (tmp_path / "program.py").write_text(PROGRAM)
    setup = f'[devices.dev]\nkind = "burst"\nslots = 2\n[slurm]\nconf = "{recorded.conf}"\n'
    with LocalService(tmp_path, setup) as served:
        announce(recorded.folder / "etc", served.url, munge_socket=str(recorded.munge_socket))
        command = f"{sys.executable} {tmp_path}/program.py 2> {tmp_path}/log"
        job = recorded.submit(User.own(), "--licenses=qpu:1", command=command)
        fields = ("sacct", "-XnP", f"--jobs={job}")
        assert until(lambda: "COMPLETED" in recorded.say(*fields, "--format=State"), 60.0), (
            tmp_path / "log"
        ).read_text()
        served.kill()
        served.start()
        assert until(lambda: recorded.say(*fields, "--format=AdminComment").strip() != "", 60.0)
        said = recorded.say(*fields, "--format=AdminComment").strip()
        (row,) = served.operator().call("GET", "/v1/usage", {"by": ["job"], "everybody": True})
    assert said == f"qtide: tasks=3 qpu_seconds={row['qpu_seconds']:.3f}"
    assert row["job"] == job
    assert "license/qpu=1" in recorded.say(*fields, "--format=AllocTRES")
