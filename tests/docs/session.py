"""Runs the Python blocks of a page, one after the other, with the same names.

Each line on stdin names a file with code and one for what it prints; the answer is a status.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer until stdin ends."""
    sys.path.insert(0, "")  # as an interactive Python does
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    names: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        code, printed = line.split()
        file = os.open(printed, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        answers.write(f"{_run(code, names)}\n")


def _run(code: str, names: dict[str, Any]) -> int:
    try:
        exec(compile(Path(code).read_text(), code, "exec"), names)
    except Exception:  # whatever a block raises is its failure
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main()
