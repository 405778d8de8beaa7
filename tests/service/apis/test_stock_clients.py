"""Unmodified packages of vendors against the running service, each in its own environment."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qtide.service.local_service import LocalService
from tests.service.apis.environments import IQM_CLIENTS, python_with

PROGRAMS = Path(__file__).with_name("programs")
LIMIT = 300.0
"""Seconds for a program; just importing IQM's packages may take twenty."""
REFUSED_TOKEN = {
    "33.0.5": "UnauthorizedError",
    "35.0.3": "AuthenticationError",
    "36.0.0": "AuthenticationError",
}


def said_by(python: Path, program: str, environment: dict[str, str]) -> dict[str, Any]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        (python, PROGRAMS / program),
        env=inherited | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("version", IQM_CLIENTS)
def test_programs_for_an_iqm_computer_run_unchanged(service: LocalService, version: str) -> None:
    said = said_by(
        python_with(f"iqm-client[qiskit]=={version}"),
        "stock_iqm.py",
        {
            "IQM_SERVER_URL": service.url,
            "IQM_TOKEN": service.token("ada"),
            "IQM_QUANTUM_COMPUTER": "star",
        },
    )
    assert set(said["bell"]) == {"00", "11"}
    assert 350 < said["bell"]["00"] < 650  # nine standard deviations
    assert said["batch"] == [{"001": 10}, {"010": 10}, {"100": 10}]
    assert said["metrics"] is True
    assert said["asked"] == ["version", 5, [["QB1", "QB2", "QB3", "QB4", "QB5"]]]
    assert sum(said["retrieved"].values()) == 300
    assert said["cancelled"] == [True, "CANCELLED"]
    assert said["failed"][:2] == [False, "ERROR"]
    assert "occupied the device for more than 0.001 s" in said["failed"][2]
    assert said["too many"]["type"] == "ValidationError"
    assert "takes 1 to 100000 shots, not 200000" in said["too many"]["said"]
    assert said["unmeasured"]["type"] == "ValidationError"
    assert "nothing is measured" in said["unmeasured"]["said"]
    assert said["wrong token"]["type"] == REFUSED_TOKEN[version]
    assert said["unknown job"]["type"] == "NotFoundError"


def test_jobs_reach_the_service_by_qrmi(service: LocalService) -> None:
    said = said_by(
        python_with("qrmi==0.26.4"),
        "stock_qrmi.py",
        {"star_QRMI_IQM_ISA_ENDPOINT": service.url, "star_QRMI_IQM_ISA_TOKEN": service.token("ada")}
        | {"QRMI_JOB_QPU_RESOURCES": "star", "QRMI_JOB_QPU_TYPES": "iqm-server"},
    )
    assert said["accessible"] is True
    assert said["metadata"]["backend_name"] == "star"
    assert said["target"]["static_quantum_architecture"][0]["qubits"][0] == "QB1"
    assert said["status"] == "TaskStatus.Completed"
    assert said["result"]["measurements"] == [{"m": [[1, 0]] * 10}]
    assert said["result"]["measurement_counts"][0]["counts"] == {"10": 10}
    assert "execution_started" in said["logs"]
    assert said["stopped"] == "TaskStatus.Cancelled"
