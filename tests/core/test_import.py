import subprocess
import sys
from pathlib import Path

import pytest


def test_recording_needs_no_heavy_package() -> None:
    names = "qtide.core.ledger, qtide.core.metrics"
    script = f"import sys, {names}; print({{'matplotlib', 'rich', 'numpy'}} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout == b"set()\n"


@pytest.mark.parametrize("words", [["list"], ["show", "last"], ["logs", "last"]])
def test_commands_that_only_read_load_no_heavy_package(tmp_path: Path, words: list[str]) -> None:
    """They have to answer within 0.3 s; pydantic alone takes half of that."""
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "qtide", *words, "--runs", str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert "qtide.interfaces.cli" in shown.stderr
    loaded = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines()}
    assert not {"pydantic", "numpy", "matplotlib"} & loaded
