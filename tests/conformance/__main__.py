"""Suites that nobody here wrote, or clients that others wrote, against a service on this computer.

    make conformance                      # all suites; each has an environment of its own
    python -m tests.conformance mitiq     # one suite

Each suite's environment is made once, in `.conformance/`. The results are in docs/conformance.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from qtide.service.local_service import LocalService

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACE = ROOT / ".conformance"
LIMIT = 1800.0
"""Seconds that a suite may take."""
DEVICES = {
    "star": 'kind = "star"',
    "gate": 'kind = "gate"\nqubits = 8',
    "annealer": 'kind = "annealer"',
}
SERVICE = """
[limits]
validation_seconds = 3000
"""


@dataclass(frozen=True)
class Suite:
    """What to install beside qtide, what to run, and on which devices."""

    packages: tuple[str, ...]
    script: str
    devices: tuple[str, ...]


SUITES = {
    "dimod": Suite(("dimod",), "dimod_samplers.py", ("annealer",)),
    "ibm-runtime": Suite(("qiskit-ibm-runtime", "qiskit-aer"), "ibm_runtime.py", ("star",)),
    "mitiq": Suite(("mitiq[qiskit]", "ply", "qiskit-aer"), "mitiq_batches.py", ("star",)),
    "mqt-bench": Suite(("mqt.bench", "qiskit-aer"), "mqt_bench.py", ("gate",)),
    "pennylane": Suite(
        ("pennylane", "pennylane-qiskit", "pytest", "pytest-mock", "flaky"),
        "pennylane_device.py",
        ("gate",),
    ),
    "qedc": Suite(("qedcbench", "qiskit-aer"), "qedc.py", ("gate",)),
    "waldur": Suite(("dimod", "waldur-site-agent-slurm"), "waldur_usage.py", ("annealer",)),
    "xdmod": Suite(("dimod",), "xdmod_usage.py", ("annealer",)),
}


def environment(name: str, suite: Suite) -> Path:
    """The suite's Python; made once."""
    folder = PLACE / name
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [
            sys.executable,
            "-m",
            "uv",
            "--no-config",
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
        ]
        subprocess.run([*pip, "--editable", str(ROOT), *suite.packages], check=True)
        (folder / "made").touch()
    return python


def passes(name: str) -> bool:
    """Run a suite on a service of its own; its output goes to the terminal."""
    suite = SUITES[name]
    python = environment(name, suite)
    tables = "".join(f"\n[devices.{each}]\n{DEVICES[each]}\n" for each in suite.devices)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalService(Path(folder), SERVICE + tables) as service,
    ):
        return _passes(name, python, service)


def _passes(name: str, python: Path, service: LocalService) -> bool:
    environ = os.environ | {
        "QTIDE_URL": service.url,
        "QTIDE_TOKEN": service.token("ada", "physics"),
        "QTIDE_OPERATOR_TOKEN": service.token("operator", operator=True),
    }
    began = time.monotonic()
    script = HERE / SUITES[name].script
    done = subprocess.run([python, script], env=environ, cwd=PLACE, timeout=LIMIT, check=False)
    verdict = "passed" if done.returncode == 0 else "FAILED"
    print(f"{name}: {verdict} in {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode == 0


def main() -> None:
    """Run the named suites, or all."""
    names = sys.argv[1:] or sorted(SUITES)
    for unknown in set(names) - set(SUITES):
        sys.exit(f"there is no suite {unknown!r}; there are: {', '.join(sorted(SUITES))}")
    PLACE.mkdir(exist_ok=True)
    results = [passes(name) for name in names]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
