"""Slurm is kept informed: licences, planned maintenance and job_submit.lua on a real slurmctld."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qtide import box
from qtide.backends.clusters.slurm.commands import Slurm, environment
from qtide.backends.clusters.slurm.deployment import deploy
from qtide.backends.clusters.slurm.licences import Licences
from qtide.service.availability import Availability
from qtide.service.configuration import AvailabilityPlan, MaintenanceWindow, Quotas
from qtide.service.local_service import LocalService
from qtide.service.service import Service
from tests.backends.slurm.stage import until
from tests.service.admission.site import Site
from tests.service.admission.users import User

FRESH = 4.0


@pytest.fixture(scope="module")
def informed(packages: None) -> Iterator[Site]:
    """A box with a licence per device, and job_submit.lua."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    folder.chmod(0o755)
    try:
        box.up(folder, nodes=1, auth="munge", licences=["qpu_star:2"])
        deploy(folder / "etc")
        conf = folder / "etc/slurm.conf"
        conf.write_text(conf.read_text() + "JobSubmitPlugins=lua\n")
        site = Site(folder)
        site.say("scontrol", "reconfigure")
        yield site
    finally:
        box.down(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(informed: Site) -> Iterator[Site]:
    yield informed
    facts(informed).unlink(missing_ok=True)
    informed.clear()


def facts(site: Site) -> Path:
    return site.folder / "etc/availability"


def tell(site: Site, *lines: str, age: float = 0.0) -> None:
    """Write what the service would write."""
    head = (f"written {time.time() - age:.0f} 60", "licence qpu_*")
    facts(site).write_text("".join(f"{line}\n" for line in (*head, *lines)))


def submitted(site: Site, *options: str) -> tuple[int, str]:
    """The exit code of sbatch, and what it says."""
    common = ["sbatch", "--partition=quantum", "--output=/dev/null", "--wrap=true", "--hold"]
    done = subprocess.run(
        [*common, *options],
        env=environment(site.conf),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


STAR = "--licenses=qpu_star:1"


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        (["device star up"], ["--licenses=qpu_moon:1"], "there is no QPU moon; there are: star"),
        (
            ["device star up", "account acme has used its QPU seconds of today"],
            [STAR, "--account=acme"],
            "the account acme has used its QPU seconds of today",
        ),
        (
            ["when_down refuse", "device star down 0 error: it burns"],
            [STAR],
            "the QPU star is away (error: it burns); it is not known when it will be back",
        ),
        (
            ["when_down refuse", "device star down 9999999999 maintenance: cooling"],
            [STAR, "--time=10"],
            "the QPU star is away (maintenance: cooling); it will be back at 2286",
        ),
    ],
)
def test_a_job_that_no_qpu_would_serve_is_refused_in_one_sentence(
    cluster: Site, lines: list[str], options: list[str], sentence: str
) -> None:
    tell(cluster, *lines)
    code, said = submitted(cluster, *options)
    assert code != 0 and sentence in said


def test_every_other_job_is_let_through(cluster: Site) -> None:
    away = ("when_down refuse", "device star down 0 error: it burns", "account acme has nothing")
    tell(cluster, *away)
    assert submitted(cluster, "--account=acme")[0] == 0  # it wants no QPU
    tell(cluster, *away, age=65.0)
    assert submitted(cluster, STAR)[0] == 0  # what the service said has expired
    tell(cluster, "when_down wait", *away[1:])
    assert submitted(cluster, STAR)[0] == 0
    tell(cluster, "when_down refuse", f"device star down {time.time() + 60:.0f} calibration")
    assert submitted(cluster, STAR, "--time=10")[0] == 0  # it is back before the job would end
    facts(cluster).write_text("nonsense\nwritten x y\ndevice\n")
    assert submitted(cluster, STAR)[0] == 0


def test_a_site_may_hold_jobs_instead(cluster: Site) -> None:
    tell(cluster, "when_down hold", "device star down 0 error: it burns")
    code, said = submitted(cluster, STAR)
    assert code == 0 and "the job is held" in said


@pytest.fixture
def service(cluster: Site, tmp_path: Path) -> Iterator[LocalService]:
    devices = '[devices.star]\nkind = "burst"\n'
    slurm = f"""
[slurm]
conf = "{cluster.conf}"
[slurm.availability]
every = 0.3
fresh = {FRESH}
settle = 0
file = "{facts(cluster)}"
when_down = "wait"
"""
    with LocalService(tmp_path, devices + slurm) as served:
        yield served


def waits(site: Site, job: int) -> bool:
    return site.say("squeue", "-h", f"--jobs={job}", "-o", "%T %r").strip() == "PENDING Licenses"


def reservations(site: Site) -> str:
    return site.say("scontrol", "--oneliner", "show", "reservations")


def test_slurm_grants_no_nodes_while_the_qpu_is_away(cluster: Site, service: LocalService) -> None:
    call = service.operator().call
    assert until(lambda: facts(cluster).exists() and "device star up" in facts(cluster).read_text())
    call("POST", "/v1/devices/star/drain", form={"reason": "cooling"})
    assert until(lambda: "qtide-withheld-qpu_star" in reservations(cluster))
    job = cluster.submit(User.own(), STAR)
    assert until(lambda: waits(cluster, job))
    assert "device star down 0 maintenance: cooling" in facts(cluster).read_text()
    call("POST", "/v1/devices/star/resume")
    assert until(lambda: cluster.state(job) == "RUNNING")
    assert "qtide-withheld" not in reservations(cluster)


def test_what_slurm_believes_expires_with_the_service(cluster: Site, service: LocalService) -> None:
    service.operator().call("POST", "/v1/devices/star/drain", form={})
    assert until(lambda: "qtide-withheld-qpu_star" in reservations(cluster))
    job = cluster.submit(User.own(), STAR)
    assert until(lambda: waits(cluster, job))
    service.kill()
    assert until(lambda: cluster.state(job) == "RUNNING")


def test_maintenance_is_entered_once_and_known_to_slurm(
    cluster: Site, service: LocalService
) -> None:
    call, now = service.operator().call, time.time()
    form = {"device": "star", "start": now + 3600, "end": now + 7200, "reason": "new cryostat"}
    planned = call("POST", "/v1/maintenance", form=form)
    name = f"qtide-maintenance-qpu_star-{planned['number']}"
    assert until(lambda: name in reservations(cluster))
    long = cluster.submit(User.own(), STAR, "--time=120")
    short = cluster.start(User.own(), STAR, "--time=30")  # over before it begins
    assert until(lambda: waits(cluster, long)) and cluster.state(short) == "RUNNING"
    (device,) = call("GET", "/v1/devices")
    assert [each["reason"] for each in device["maintenance"]] == ["new cryostat"]
    call("DELETE", f"/v1/maintenance/{planned['number']}")
    assert until(lambda: cluster.state(long) == "RUNNING")
    assert name not in reservations(cluster)


@dataclass
class FakeDevice:
    """A device in a state of the test's choice."""

    name: str = "star"
    state: str = "idle"
    reason: str | None = None
    expected_wait: float | None = 0.0
    back: float | None = None
    maintenance: list[MaintenanceWindow] = field(default_factory=list)

    def why_waiting(self) -> str:
        return "maintenance" if self.state == "maintenance" else "queue"


class Watched:
    """What is told about one device, on a clock of the test's own."""

    def __init__(self, **plan: Any) -> None:
        self.time = 0.0
        self.device = FakeDevice()
        service = SimpleNamespace(
            now=lambda: self.time,
            devices={"star": self.device},
            configuration=SimpleNamespace(quotas=Quotas()),
            allocations=SimpleNamespace(of_accounts=set),
        )
        made = AvailabilityPlan(settle=30.0, **plan)
        self.availability = Availability(cast(Service, service), cast(Slurm, None), made)

    def after(self, seconds: float, **state: Any) -> str | None:
        self.time += seconds
        for key, value in state.items():
            setattr(self.device, key, value)
        return self.availability.judge(cast(Any, self.device))


def test_a_fault_has_to_last_before_slurm_is_told_and_so_has_its_end() -> None:
    watched = Watched()
    assert watched.after(0.0, state="error", reason="no answer") is None
    assert watched.after(29.0) is None
    assert watched.after(1.0) == "error: no answer"
    assert watched.after(10.0, state="idle", reason=None) == "error: no answer"
    assert watched.after(10.0, state="error", reason="no answer") == "error: no answer"
    assert watched.after(10.0, state="idle", reason=None) == "error: no answer"
    assert watched.after(30.0) is None


def test_an_operator_is_believed_at_once() -> None:
    watched = Watched()
    assert watched.after(0.0, state="maintenance", reason="cooling") == "maintenance: cooling"
    assert watched.after(1.0, state="idle", reason=None) is None


def test_a_saturated_device_lets_jobs_in_again_when_its_queue_has_halved() -> None:
    watched = Watched(most_wait=100.0)
    assert watched.after(0.0, expected_wait=101.0) is None
    assert watched.after(30.0) == "saturated"
    watched.after(1.0, expected_wait=60.0)
    assert watched.after(60.0) == "saturated"
    watched.after(1.0, expected_wait=40.0)
    assert watched.after(60.0) is None


def test_a_dry_run_only_logs(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(dry_run=True)
    watched.device.state, watched.device.reason = "maintenance", "cooling"
    with caplog.at_level("INFO"):
        asyncio.run(watched.availability.look())  # without a Slurm that could be told
    assert [each.message for each in caplog.records] == ["licences withheld"]


def test_a_licence_that_slurm_does_not_have_is_named(cluster: Site) -> None:
    with pytest.raises(Exception, match="Slurm has no licence qpu_moon"):
        asyncio.run(Licences(cluster.slurm, "qpu_moon").withhold_for(60.0))
