"""What matters most, once more on the newest Slurm, which needs no munge: 26.05 and later.

`make test-releases` runs everything on every release. Where the newest cannot be fetched, this file
is left out, and test_wires.py says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide import box
from qtide.box.daemons import daemons, give_tokens
from qtide.box.layout import BoxLayout
from qtide.service.local_service import LocalService
from tests.backends.slurm.fixtures import NEWEST, remove
from tests.backends.slurm.test_accounting import (
    recorded,
    test_slurm_s_records_say_what_a_run_held,
)
from tests.backends.slurm.test_cluster import (
    test_a_request_that_is_cancelled_leaves_the_queue,
    test_closing_gives_everything_back,
    test_impatience_takes_what_there_is,
    test_nodes_are_granted_work_and_go_back,
    test_what_slurm_refuses_is_told_in_its_words,
)
from tests.backends.slurm.test_leases import (
    test_a_lease_that_slurm_takes_away_is_asked_for_again,
    test_nodes_and_a_qpu_are_one_heterogeneous_job,
)
from tests.backends.slurm.test_licences import (
    licences,
    test_some_may_be_withheld,
    test_while_a_device_drains_running_jobs_keep_theirs_and_new_ones_wait,
)
from tests.service.admission.site import Site
from tests.service.admission.users import User

__all__ = [
    "licences",
    "recorded",
    "test_a_lease_that_slurm_takes_away_is_asked_for_again",
    "test_a_request_that_is_cancelled_leaves_the_queue",
    "test_closing_gives_everything_back",
    "test_impatience_takes_what_there_is",
    "test_nodes_and_a_qpu_are_one_heterogeneous_job",
    "test_nodes_are_granted_work_and_go_back",
    "test_slurm_s_records_say_what_a_run_held",
    "test_some_may_be_withheld",
    "test_what_slurm_refuses_is_told_in_its_words",
    "test_while_a_device_drains_running_jobs_keep_theirs_and_new_ones_wait",
]


@pytest.fixture(autouse=True, scope="module")
def newest() -> Iterator[None]:
    """Every box of this file runs the newest release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QTIDE_BOX_RELEASE", NEWEST)
        yield


@pytest.fixture(scope="module")
def conf(packages: None, newest: None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        yield Path(box.env(box.up(folder, nodes=3, qpus=2).folder)["SLURM_CONF"])
    finally:
        remove(folder)


@pytest.fixture(scope="module")
def whole_site(packages: None, newest: None) -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    folder.chmod(0o755)  # jobs of other users read it
    try:
        box.up(folder, nodes=1, qpus=2, auth="munge")  # by which the service knows its callers
        yield Site(folder)
    finally:
        box.down(folder)
        shutil.rmtree(folder, ignore_errors=True)


def test_it_is_the_newest_and_has_no_munge(conf: Path) -> None:
    assert "AuthType=auth/slurm" in conf.read_text()
    running = set(daemons(conf.parents[1]).values())
    assert running == {"sackd", "slurmctld", "slurmd"}


def test_without_munge_a_slurm_token_proves_the_user_of_a_job(
    packages: None, newest: None, tmp_path: Path
) -> None:
    """By a real `scontrol token`; the job of another user, and one without a slot, are refused."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    folder.chmod(0o755)  # jobs of other users read it
    try:
        box.up(folder, nodes=1, qpus=2)
        layout = BoxLayout(folder)
        slurm = f'[slurm]\nconf = "{layout.conf}"\njwt_key = "{layout.jwt_key}"\n'
        devices = '[devices.dev]\nkind = "burst"\nslots = 2\n'
        with LocalService(tmp_path, devices + slurm) as service:
            give_tokens(layout, service.url)
            site, shown = Site(folder), "echo $QTIDE_TOKEN$QTIDE_REFUSED"
            for user in (User.own(), User("nobody")):
                words = ("srun", "--licenses=qpu:1", "sh", "-c", shown)
                assert site.run(user, *words).startswith("qtide_")
            slotless = site.run(User.own(), "srun", "--partition=quantum", "sh", "-c", shown)
            assert "holds no slot of a QPU" in slotless
            job = site.submit(User.own(), "--licenses=qpu:1", command="sleep 60")
            foreign = (str(folder / "etc/prolog.sh"), str(job))
            done = subprocess.run(
                User("nobody").words(*foreign),
                capture_output=True,
                text=True,
                check=False,
                env={"PATH": os.defpath, "SLURM_CONF": str(layout.conf)},
            )
            assert f"job {job} is no running job of yours" in done.stderr
    finally:
        remove(folder)
