"""A Slurm job at the real service: admitted by its slot, until its end."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.clusters.slurm.deployment import announce
from qtide.backends.payloads.payload import Burst
from qtide.box.daemons import give_tokens
from qtide.box.layout import BoxLayout
from qtide.service.configuration_check import read_configuration, troubles, without_effect
from qtide.service.local_service import LocalService
from tests.backends.slurm.stage import until
from tests.service.admission.site import Site
from tests.service.admission.users import User
from tests.service.serving import wait_until

PROGRAM = """
import os, qtide
from qtide.backends.payloads.payload import Burst
qpu = qtide.qpu()
print(qpu.run(Burst(0.05, "from the device")), os.environ["QTIDE_TOKEN"], flush=True)
input()
"""


@pytest.fixture
def service(site: Site, tmp_path: Path) -> Iterator[LocalService]:
    """The service that the box's prolog calls."""
    devices = '[devices.dev]\nkind = "burst"\nslots = 2\n'
    slurm = f'[slurm]\nconf = "{site.conf}"\n'
    with LocalService(tmp_path, devices + slurm) as served:
        announce(site.folder / "etc", served.url, munge_socket=str(site.munge_socket))
        yield served


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def run_in_a_job(site: Site, program: Path, out: Path, *options: str) -> int:
    """A program in plain Python, in a job that runs until it is cancelled."""
    command = f"sleep 600 | {sys.executable} {program} > {out} 2>&1"
    return site.submit(User.own(), *options, command=command)


def test_a_job_with_a_slot_uses_the_qpu_without_configuration_and_is_accounted_by_its_number(
    site: Site, service: LocalService, program: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = run_in_a_job(site, program, out, "--licenses=qpu:1")
    wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
    said, _, token = out.read_text().strip().rpartition(" ")
    assert said == "from the device", out.read_text()

    client = Client(service.url, token, patience=0.0)
    rows = client.call("GET", "/v1/usage", {"by": ["job"]})
    assert [(row["job"], row["tasks"]) for row in rows] == [(job, 1)]
    assert rows[0]["qpu_seconds"] > 0.04

    site.say("scancel", str(job))
    wait_until(lambda: refused(client))
    assert token not in (tmp_path / "serve.log").read_text()


def test_a_task_that_starts_with_the_service_waits_for_it(
    site: Site, service: LocalService
) -> None:
    """Its service runs on the same host, where its process is seen to load."""
    service.stop()
    service.start(ready=False)
    words = ("srun", "--licenses=qpu:1", "sh", "-c", "echo $QTIDE_TOKEN$QTIDE_REFUSED")
    assert site.run(User.own(), *words).startswith("qtide_")


def test_a_job_whose_user_has_no_qpu_time_left_hears_it_at_once_and_slurm_knows(
    site: Site, tmp_path: Path
) -> None:
    devices = '[devices.dev]\nkind = "burst"\nslots = 2\n[quotas.user]\nqpu_seconds = 0.1\n'
    with LocalService(tmp_path, f'{devices}[slurm]\nconf = "{site.conf}"\n') as served:
        announce(site.folder / "etc", served.url, munge_socket=str(site.munge_socket))
        name = User.own().name
        served.client(name).run(Burst(0.1), "dev")
        command = "echo $QTIDE_TOKEN $QTIDE_REFUSED; sleep 1; scontrol show job $SLURM_JOB_ID"
        shown = site.run(User.own(), "srun", "--licenses=qpu:1", "sh", "-c", command)
    why = (
        f"the user {name} has used its 0.1 QPU seconds of today; submit the job again with --begin"
    )
    assert why in shown.splitlines()[0]
    assert f"AdminComment=qtide: {why}" in shown


def test_a_check_warns_of_slots_and_accounts_that_do_not_fit_slurm(
    site: Site, tmp_path: Path
) -> None:
    slurm = f'[slurm]\nconf = "{site.conf}"\n[fair.shares]\nphysics = 2.0\n'
    few = tmp_path / "few.toml"
    few.write_text('[devices.dev]\nkind = "burst"\nslots = 1\n' + slurm)
    configuration = read_configuration(few)
    (trouble,) = troubles(configuration)
    assert "licences qpu, but the devices have 1 slots; some jobs will be refused" in trouble
    warning = asyncio.run(without_effect(configuration))
    assert warning is not None and "have no effect on Slurm's jobs" in warning


def test_a_box_uses_the_socket_of_a_service_if_all_its_users_can_reach_it(
    site: Site, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = site.folder / "etc/service.conf"
    home = site.folder / "tmp/state"
    announced = home / "qtide/service/access.json"
    announced.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))

    def told(socket: str) -> list[str]:
        announced.write_text(json.dumps({"url": service.url, "socket": socket}))
        give_tokens(BoxLayout(site.folder), service.url)
        return [line for line in conf.read_text().splitlines() if line.startswith("socket=")]

    own = service.socket.removeprefix("unix://")
    assert told(own) == [], "no other user can enter the folder of this test"
    open_to_all = site.folder / "tmp/open"
    open_to_all.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(open_to_all / "socket"))
        served.listen()
        assert told(str(open_to_all / "socket")) == [f"socket={open_to_all}/socket"]
    conf.write_text("")


def test_a_job_without_a_slot_gets_no_token_and_is_told_why(
    site: Site, service: LocalService, program: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    site.submit(User.own(), command=f"echo $QTIDE_TOKEN $QTIDE_REFUSED > {out}")
    wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
    assert "holds no slot of a QPU" in out.read_text()
    assert "qtide_" not in out.read_text()


def test_while_a_device_is_drained_jobs_wait_in_slurm_until_it_is_resumed(
    site: Site, service: LocalService
) -> None:
    operator = service.operator()
    operator.call("POST", "/v1/devices/dev/drain", form={"licences": True})
    job = site.submit(User("nobody"), "--licenses=qpu:1")
    assert until(lambda: "Reason=Licenses" in site.say("scontrol", "show", "job", str(job)))
    operator.call("POST", "/v1/devices/dev/resume")
    assert until(lambda: site.state(job) == "RUNNING")


def test_a_job_that_asks_often_gets_one_token_and_delays_nobody(
    site: Site, service: LocalService
) -> None:
    hog, other = User("nobody"), User("daemon")
    mine, theirs = (site.start(each, "--licenses=qpu:1") for each in (hog, other))
    ask = f"{site.folder}/etc/prolog.sh {mine} | sed -n s/^export.QTIDE_TOKEN=//p"
    often = f"for i in $(seq 20); do {ask} & done; wait"
    tokens = site.run(hog, "sh", "-c", often).split()
    assert len(tokens) == 20 and len(set(tokens)) == 1
    assert "QTIDE_TOKEN" in site.run(other, f"{site.folder}/etc/prolog.sh", str(theirs))
    listed = [each for each in service.log() if each["event"] == "job admitted"]
    assert sorted(each["job"] for each in listed) == sorted([mine, theirs])


def refused(client: Client) -> bool:
    try:
        client.devices()
    except ServiceFailed as error:
        assert error.status == 401
        return True
    return False
