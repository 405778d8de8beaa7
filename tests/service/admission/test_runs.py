"""A run on Slurm whose leases are jobs: each of them brings its own token for the service."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide.service.local_service import QTIDE, LocalService
from tests.service.admission.site import Site

PROGRAM = """
from qtide import program, quantum
from qtide.backends.payloads.payload import Burst

@program
async def twice():
    return [await quantum(Burst(0.05, n)) for n in range(2)]
"""
BY = ("licence", "gres")


@pytest.fixture(scope="module")
def service(whole_site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    devices = '[devices.dev]\nkind = "burst"\nslots = 2\n'
    slurm = f'[slurm]\nconf = "{whole_site.conf}"\n'
    with LocalService(tmp_path_factory.mktemp("service"), devices + slurm) as served:
        yield served


def run(site: Site, service: LocalService, place: Path, *words: str) -> Any:
    """What a run prints, of a user who has no token."""
    (place / "twice.py").write_text(PROGRAM)
    bare = {name: value for name, value in os.environ.items() if not name.startswith("QTIDE_")}
    command = (QTIDE, "run", "twice.py", "--qpu", f"{service.url}/dev", "--json")
    return subprocess.run(
        [*command, "--cluster", "slurm", *words],
        env=bare | {"SLURM_CONF": str(site.conf), "XDG_STATE_HOME": str(place)},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("strategy", ["workflow", "static"])
def test_the_job_of_a_lease_is_admitted_and_charged(
    site: Site, service: LocalService, tmp_path: Path, by: str, strategy: str
) -> None:
    done = run(site, service, tmp_path, "--qpu-by", by, "--strategy", strategy, "--nodes", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == [0, 1]
    tasks = [task.response for task in service.operator().tasks(everybody=True)][:2]
    jobs = {task["job"] for task in tasks}
    assert None not in jobs
    assert len(jobs) == (2 if strategy == "workflow" else 1)  # a lease each, or one for both
    text = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*.*"))
    assert "qtide_" not in text, "a token was written down"


def test_without_a_lease_of_slurms_a_run_is_refused_before_it_begins(
    site: Site, service: LocalService, tmp_path: Path
) -> None:
    done = run(site, service, tmp_path, "--strategy", "workflow", "--nodes", "1")
    assert done.returncode == 1
    assert "qtide token new" in done.stderr
