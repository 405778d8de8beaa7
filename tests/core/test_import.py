import subprocess
import sys


def test_recording_needs_no_heavy_package() -> None:
    names = "qtide.core.ledger, qtide.core.metrics"
    script = f"import sys, {names}; print({{'matplotlib', 'rich', 'numpy'}} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout == b"set()\n"
