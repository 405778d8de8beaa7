"""Waldur's site agent reads QPU time beside Slurm's own, through `deploy/waldur/sacct`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import dimod
from waldur_site_agent_slurm.backend import SlurmBackend

from qtide.backends.client.client import Client

WRAPPER = Path(__file__).parents[2] / "deploy/waldur/sacct"
SLURM = '#!/bin/sh\necho "physics|billing=2,cpu=2,node=1|01:00:00|ada"\n'
"""A sacct with one job of two cores and an hour."""
COMPONENTS = {
    "cpu": {"limit": 10, "measured_unit": "k-Hours", "unit_factor": 60},
    "qpu": {"limit": 10, "measured_unit": "ms", "unit_factor": 1},
}


def main() -> None:
    """Use the device, and compare what the agent reads with the books."""
    qpu = Client(os.environ["QTIDE_URL"], os.environ["QTIDE_TOKEN"])
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {"ab": -1.0}, "BINARY")
    for _ in range(3):
        qpu.run(model, "annealer")
    with tempfile.TemporaryDirectory() as folder:
        bin_path = Path(folder)
        shutil.copy(WRAPPER, bin_path / "sacct")
        (bin_path / "real").write_text(SLURM)
        (bin_path / "real").chmod(0o755)
        here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ |= {
            "QTIDE_REAL_SACCT": str(bin_path / "real"),
            "QTIDE_TOKEN": os.environ["QTIDE_OPERATOR_TOKEN"],
            "PATH": here,
        }
        backend = SlurmBackend({"slurm_bin_path": folder, "timezone": "UTC"}, COMPONENTS)
        now = datetime.now(UTC)
        report = backend.get_usage_report_for_period(["physics"], now.year, now.month)
    (mine,) = qpu.call("GET", "/v1/usage", {"by": ["account"]})
    used = {"cpu": 2, "qpu": round(1000 * mine["qpu_seconds"])}
    assert report == {"physics": {"ada": used, "TOTAL_ACCOUNT_USAGE": used}}, (report, used)


if __name__ == "__main__":
    main()
