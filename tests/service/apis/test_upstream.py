"""A computer upstream: the device of one service is behind the IQM API of another."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService
from tests.service.apis.calling import Caller
from tests.service.apis.environments import python_with
from tests.service.apis.test_iqm import batch, ended, handed_in
from tests.service.serving import wait_until

LIMIT = 300.0
PROJECT = Path(__file__).parents[3]
DEVICE = """
[devices.upstream]
kind = "iqm"
url = "{url}"
quantum_computer = "star"
token_file = "{token}"
python = "{python}"
retries = 100
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """With IQM's client and this project; compiled once, since a device has a minute to start."""
    found = python_with("iqm-client[qiskit]==36.0.0", "--editable", str(PROJECT))
    subprocess.run([found, "-c", "import iqm.iqm_client"], env={}, check=True, timeout=LIMIT)
    return found


def in_front_of(service: LocalService, folder: Path, python: Path) -> LocalService:
    """A service that holds the only token for the one behind it."""
    token = folder / "token"
    token.write_text(service.token("site"))
    return LocalService(folder, DEVICE.format(url=service.url, token=token, python=python))


@pytest.fixture(scope="module")
def nearer(
    service: LocalService, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalService]:
    with in_front_of(service, tmp_path_factory.mktemp("nearer"), python) as served:
        yield served


def test_a_circuit_passes_through_both(service: LocalService, nearer: LocalService) -> None:
    call = Caller(nearer.url, nearer.token("ada"))
    architecture = call("GET", "calibration-sets/upstream/default/dynamic-quantum-architecture")
    assert architecture["gates"]["cz"]["implementations"]["default"]["loci"][0] == ["QB1", "QB3"]
    job = handed_in(call, "upstream")
    assert ended(call, job)["status"] == "completed"
    [rows] = call("GET", f"jobs/{job}/artifacts/measurements")
    assert rows["a"] == [[1, 0]] * 4
    behind = service.client("site").tasks()
    [task] = behind
    assert task.response["name"] == "flips"
    [here] = nearer.client("ada").tasks()
    assert here.response["calibration"] == task.response["calibration"] is not None
    assert architecture["calibration_set_id"] == here.response["calibration"]
    metrics = call("GET", "calibration-sets/upstream/default/metrics")["observations"]
    assert "metrics.irb.cz.default.QB1__QB3.fidelity" in {one["dut_field"] for one in metrics}
    assert nearer.client("ada").device("upstream")["calibration"]["metrics"]


def test_what_the_computer_upstream_does_not_take_is_refused_here(nearer: LocalService) -> None:
    call = Caller(nearer.url, nearer.token("ada"))
    far = {"name": "cz", "locus": ["QB1", "QB2"], "args": {}}
    circuits = batch()["circuits"]
    circuits[0]["instructions"].insert(0, far)
    said = call("POST", "jobs/upstream/circuit", batch(circuits=circuits), 422)
    assert "cz" in said["message"]


def test_a_computer_that_is_unreachable_is_waited_for(python: Path, tmp_path: Path) -> None:
    for name in ("farther", "nearer"):
        (tmp_path / name).mkdir()
    farther = LocalService(tmp_path / "farther", '[devices.star]\nkind = "star"\n').start()
    try:
        with in_front_of(farther, tmp_path / "nearer", python) as nearer:
            operator, call = nearer.operator(), Caller(nearer.url, nearer.token("ada"))
            operator.call("POST", "/v1/devices/upstream/drain", form={})
            job = handed_in(call, "upstream")
            farther.kill()
            operator.call("POST", "/v1/devices/upstream/resume")
            wait_until(lambda: operator.device("upstream")["state"] == "error")
            assert farther.url in operator.device("upstream")["reason"]
            farther.start()
            wait_until(lambda: ended(call, job)["status"] == "completed")
    finally:
        farther.kill()
