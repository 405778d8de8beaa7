"""The agent: the process that works on a node.

It imports what earlier tasks of the program needed, if its driver knows that, and otherwise almost
nothing until a task needs it. It answers each task with the ticket it came with. A supervisor
beside it ends it, with everything it started, as soon as its driver is gone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from qtide.clusters.imports import Imports, load
from qtide.clusters.supervisor import guarded
from qtide.errors import QtideError
from qtide.jobs.values import Packed, Unstorable, Values
from qtide.system.bytecode import keep_bytecode
from qtide.system.frames import Header, frame, read
from qtide.system.parent import die_with_parent


def main() -> None:
    """Serve tasks until the driver is gone. The first argument holds the node's terms as JSON."""
    terms = json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")
    tasks, answers = guarded(**terms.get("supervisor", {}))
    _limit(**terms.get("limits", {}))
    answers.write(frame({"hello": os.getpid()}))
    die_with_parent()
    keep_bytecode()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # to be followed
    _prepare(**terms.get("preparation", {}))
    answers.write(frame({"prepared": True}))
    imports = Imports()
    imports.watch()
    while (message := read(tasks)) is not None:
        header, body = _perform(*message)
        header |= imports.take()
        sys.stdout.flush()  # a kill may be the next thing that happens to this process
        answers.write(frame(header, body))


def _limit(memory: int | None = None, cores: list[int] | None = None) -> None:
    if memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if cores is not None:
        os.sched_setaffinity(0, cores)


def _prepare(path: list[str] | None = None, modules: list[str] | None = None) -> None:
    """Import what tasks will need, from where they will look for it."""
    if path is not None and modules:
        sys.path[:] = path
        load(modules)
        sys.stdout.flush()


def _perform(header: Header, body: bytes) -> tuple[Header, bytes]:
    """One task: its answer, whatever becomes of it."""
    ticket = {"ticket": header["ticket"]}
    function = None
    sys.path[:] = header["path"]
    values = Values(Path(header["values"]))
    try:
        function, args, kwargs = values.unpack(
            Packed(body, header["file"], tuple(header["buffers"]))
        )
        result = function(*args, **kwargs)
        packed = values.pack(result)
        return ticket | {"file": packed.file, "buffers": packed.buffers}, packed.data
    except BaseException as error:
        from qtide.jobs.traceback import definition, own_lines

        text, data = _failure(error, values)
        return ticket | {"error": text, "lines": own_lines(error) or definition(function)}, data


def _failure(error: BaseException, values: Values) -> tuple[str, bytes]:
    """The exception as text, and pickled if it can be."""
    import traceback

    text = "".join(traceback.format_exception_only(error)).strip()
    try:
        packed = values.pack(error)
    except (Unstorable, QtideError):
        return text, b""
    return text, packed.data


if __name__ == "__main__":
    main()
