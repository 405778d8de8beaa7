"""Starts the program on a newcomer as quickly as possible.

Imports take most of the time until a newcomer can join, so the first start on a node caches the
bytecode of modules that are not compiled yet.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import ModuleType

from qtide.core.files import keep_bytecode

BOOT = "from qtide.mpi.newcomer import main; main()"


def command(original: list[str], arguments: list[str], start: Path) -> list[str]:
    """Return the command that starts the program again in its original folder."""
    place = len(original) - len(arguments)
    at = ["env", f"--chdir={start}"] if Path.cwd() != start else []
    if arguments[0] in ("", "-c", "-m") or original[place:] != arguments:
        return [*at, sys.executable, *original[1:]]
    return [*at, sys.executable, *original[1:place], "-c", BOOT, *arguments]


def main() -> None:
    """Run the script named by the arguments, as Python itself would."""
    keep_bytecode()
    del sys.argv[0]
    path = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - as Python does
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = __builtins__
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, module.__dict__)
