"""Traces which source files of qtide a process passes, in order, into one file per process.

Python imports this module at its start if its folder is on PYTHONPATH.
"""

import os
import sys
import threading
from types import FrameType
from typing import Any

FOLDER = os.environ.get("QTIDE_TRACE", "")
OPTIMIZED = 1
"""The flag of a function's code; that of a module or a class body has it not."""
_last = threading.local()
_file = -1


def _open() -> None:
    global _file  # noqa: PLW0603 - one per process
    name = os.path.join(FOLDER, str(os.getpid()))  # noqa: PTH118 - pathlib would be traced
    _file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _profile(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    path = code.co_filename.rpartition("/src/qtide/")[2]
    ours = event == "call" and path != code.co_filename and code.co_flags & OPTIMIZED
    if ours and getattr(_last, "path", None) != path:
        _last.path = path
        os.write(_file, f"{path}\n".encode())


if FOLDER:
    _open()
    os.register_at_fork(after_in_child=_open)
    sys.setprofile(_profile)
    threading.setprofile(_profile)
