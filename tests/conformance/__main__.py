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
from enum import Enum
from pathlib import Path

from qtide.service.local_service import LocalService

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACE = ROOT / ".conformance"
LIMIT = 1800.0
"""Seconds that a suite may take."""
DEVICES = {
    "star": 'kind = "star"',
    "noisy": 'kind = "noisy-star"',
    "gate": 'kind = "gate"\nqubits = 8',
    "annealer": 'kind = "annealer"',
}
SERVICE = """
[limits]
validation_seconds = 3000
"""


BUILD = "setuptools<80\n"
"""For packages that have no wheel and whose builds still import what setuptools has dropped."""
PINNED = ("ibm-platform-services==0.77.1", "ibm-cloud-sdk-core==3.28.0")
"""Packages without wheels: unpinned, dozens of their versions are built in search of one."""


class Home(Enum):
    """Where a suite's script runs."""

    BESIDE = "in an environment with qtide and the packages"
    ALONE = "in an environment with the packages, without qtide"
    APART = "in ours, with the interpreter of the packages' environment as its argument"


@dataclass(frozen=True)
class Suite:
    """What to install, what to run, and on which devices."""

    packages: tuple[str, ...]
    script: str
    devices: tuple[str, ...]
    home: Home = Home.BESIDE
    instead: tuple[str, ...] = ()
    """Versions to install in place of those that the packages ask for."""


SUITES = {
    "dimod": Suite(("dimod",), "dimod_samplers.py", ("annealer",)),
    "ibm-runtime": Suite(("qiskit-ibm-runtime", "qiskit-aer"), "ibm_runtime.py", ("star",)),
    "iqm-benchmarks": Suite(
        ("iqm-benchmarks==3.0.0", *PINNED), "iqm_benchmarks.py", ("noisy",), Home.ALONE
    ),
    "mitiq": Suite(("mitiq[qiskit]", "ply", "qiskit-aer"), "mitiq_batches.py", ("star",)),
    "mqt-bench": Suite(("mqt.bench", "qiskit-aer"), "mqt_bench.py", ("gate",)),
    "pennylane": Suite(
        ("pennylane", "pennylane-qiskit", "pytest", "pytest-mock", "flaky", *PINNED),
        "pennylane_device.py",
        ("gate",),
    ),
    "qedc": Suite(("qedcbench", "qiskit-aer"), "qedc.py", ("gate",)),
    "qstone": Suite(
        ("QStone==0.4.1",),
        "qstone_slurm.py",
        ("gate",),
        Home.APART,
        instead=("pygsti==0.9.14.3",),  # it pins one that has to be compiled
    ),
    "waldur": Suite(("dimod", "waldur-site-agent-slurm"), "waldur_usage.py", ("annealer",)),
    "xdmod": Suite(("dimod",), "xdmod_usage.py", ("annealer",)),
}


def environment(name: str, suite: Suite) -> Path:
    """The suite's Python; made once."""
    folder = PLACE / name
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        build, instead = folder / "build.txt", folder / "instead.txt"
        build.write_text(BUILD)
        instead.write_text("\n".join(suite.instead))
        pip = [sys.executable, "-m", "uv", "--no-config", "pip", "install", "--quiet"]
        pip += ["--python", str(python), "--build-constraints", str(build)]
        pip += ["--overrides", str(instead), *suite.packages]
        if suite.home is Home.BESIDE:
            pip += ["--editable", str(ROOT)]
        subprocess.run(pip, check=True)
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
    words = [str(python), str(HERE / SUITES[name].script)]
    if SUITES[name].home is Home.APART:
        words = [sys.executable, words[1], words[0]]
    done = subprocess.run(words, env=environ, cwd=PLACE, timeout=LIMIT, check=False)
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
