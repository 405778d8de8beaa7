import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from qtide.core.ledger import Ledger
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        ("qtide.core.ledger, qtide.core.metrics", {"matplotlib", "numpy", "rich"}),
        # many nodes may start on one host
        ("qtide.backends.clusters.nursery", {"asyncio", "numpy", "ssl"}),
    ],
    ids=["recording", "nodes"],
)
def test_these_need_no_heavy_package(names: str, heavy: set[str]) -> None:
    script = f"import sys, {names}; print({heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout == b"set()\n"


HEAVY = {"asyncio", "cloudpickle", "dimod", "matplotlib", "numpy", "pydantic", "qiskit", "rich"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["list"], 0),
        (["show", "it"], 0),
        (["show", "last", "--json"], 0),
        (["logs", "it"], 0),
        (["queue"], 2),  # there is no service: what it prints needs no more
        (["devices"], 2),
    ],
)
def test_commands_that_only_read_load_no_heavy_package(
    tmp_path: Path, words: list[str], code: int
) -> None:
    """They have to answer within 0.3 s; pydantic alone takes half of that."""
    run = RunFolder.create(tmp_path / "runs", "it", Spec("synthetic", cluster="simulated"))
    with closing(Ledger("it", lambda: 1.0, run.ledger)) as ledger, ledger.span("run", "driver", ""):
        ledger.span("busy", "node/1", "f").close()
    run.finish({"value": 1})
    home = {"HOME": str(tmp_path), "QTIDE_RUNS": str(tmp_path / "runs"), "PATH": os.defpath}
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "qtide", *words],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=home,
    )
    assert shown.returncode == code, shown.stderr[-500:]
    loaded = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines()}
    assert "qtide.interfaces.cli.main" in loaded
    assert not HEAVY & loaded
