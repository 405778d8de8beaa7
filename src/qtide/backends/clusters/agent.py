"""The agent: the process that runs tasks on a node.

At its start it imports what earlier tasks of the program needed, if the driver knows that, and
otherwise as little as possible; hence the late imports in this file. It answers each task with the
task's ticket. A supervisor kills the agent and everything it started as soon as the driver is gone.
"""

from __future__ import annotations

import json
import os
import sys
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, BinaryIO

from qtide.backends.clusters.supervisor import guarded
from qtide.core.errors import QtideError
from qtide.core.files import keep_bytecode
from qtide.core.processes import Header, die_with_parent, frame, read
from qtide.core.values import Packed, Unstorable, Values

MPI_CALLER = "qtide.mpi.gang"
"""The module that calls a rank of an MPI task; loaded only when needed, as it requires mpi4py."""
MALLEABLE_CALLER = "qtide.mpi.task_job"
"""The module that calls a process of a malleable task, loaded in the same way."""


class Imports:
    """Records which modules tasks import, and for how long; nested imports count for the outermost.

    Many modules read the environment while they load. So modules imported after a task has changed
    the environment are left out: other processes must not import them in advance.
    """

    def __init__(self) -> None:
        self._modules: dict[str, float] = {}
        self._seconds = 0.0
        self._under_way = False
        self._thread = get_ident()
        self._environment = os.environ.copy()
        self._changed = False

    def watch(self) -> None:
        """Start recording; do nothing if the interpreter's import system is not supported."""
        system = sys.modules["_frozen_importlib"]
        load = getattr(system, "_find_and_load", None)
        if load is None:
            return

        def timed(name: str, importer: Any) -> ModuleType:
            if name in sys.modules or self._under_way or get_ident() != self._thread:
                return load(name, importer)  # type: ignore[no-any-return]
            self._changed = self._changed or os.environ.copy() != self._environment
            self._under_way, began = True, perf_counter()
            try:
                module: ModuleType = load(name, importer)
            finally:
                self._under_way = False
            self._add(name, perf_counter() - began)
            return module

        system._find_and_load = timed  # type: ignore[attr-defined]

    def accept_environment(self) -> None:
        """Take the environment as it is now for that of every process."""
        self._environment = os.environ.copy()

    def take(self) -> dict[str, Any]:
        """Return what was imported since the last call, as fields of an answer."""
        if not self._seconds:
            return {}
        taken = {"imported": self._modules, "importing": self._seconds}
        self._modules, self._seconds = {}, 0.0
        return taken

    def _add(self, name: str, seconds: float) -> None:
        self._seconds += seconds
        if not self._changed:
            self._modules[name] = round(seconds, 6)
            self._environment = os.environ.copy()  # a module makes its changes in every process


def load(modules: list[str]) -> None:
    """Import modules, ignoring failures: the task that needs a missing module reports it."""
    import gc

    gc.disable()  # imports create hardly any garbage; this saves a tenth of the time
    try:
        for name in modules:
            with suppress(BaseException):  # including SystemExit from a module that calls sys.exit
                import_module(name)
    finally:
        gc.enable()


def main() -> None:
    """Serve tasks until the driver is gone. The first argument holds the settings as JSON."""
    terms = json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")
    own = {name: terms[name] for name in ("limits", "preparation") if name in terms}
    tasks, answers = guarded(own, **terms.get("supervisor", {}))
    limit(**terms.get("limits", {}))
    answers.write(frame({"hello": os.getpid()}))
    die_with_parent()
    keep_bytecode()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # to be followed
    prepare(**terms.get("preparation", {}))
    answers.write(frame({"prepared": True}))
    serve(tasks, answers)


def serve(tasks: BinaryIO, answers: BinaryIO) -> None:
    """Run tasks until the pipe that they come from is closed."""
    imports = Imports()
    imports.watch()
    part = Part()
    while (message := read(tasks)) is not None:
        if "slot" in message[0]:
            part.occupy(**message[0]["slot"])
            imports.accept_environment()
        if "told" in message[0]:  # the task that it was for has ended
            continue
        header, body = _perform(*message, partial(Channel, tasks, answers))
        header |= imports.take()
        sys.stdout.flush()  # the process may be killed next
        answers.write(frame(header, body))


class Channel:
    """What the task that runs and its driver tell each other."""

    def __init__(self, tasks: BinaryIO, answers: BinaryIO, ticket: int) -> None:
        self._tasks = tasks
        self._answers = answers
        self._ticket = ticket

    def say(self, message: dict[str, Any]) -> None:
        """Tell the driver something."""
        self._answers.write(frame({"said": self._ticket, "message": message}))

    def heard(self) -> list[dict[str, Any]]:
        """Return what the driver has said since the last call."""
        heard = []
        while self._more() and (message := read(self._tasks)) is not None:
            if message[0].get("told") == self._ticket:
                heard.append(message[0]["message"])
        return heard

    def _more(self) -> bool:
        """Whether there is something to read."""
        pipe = self._tasks.fileno()
        os.set_blocking(pipe, False)
        try:
            return bool(self._tasks.peek(1))  # type: ignore[attr-defined]  # it is buffered
        finally:
            os.set_blocking(pipe, True)


@lru_cache(maxsize=1)
def near_each_other(cpus: frozenset[int], place: str = "/sys/devices/system/cpu") -> list[int]:
    """Return CPUs in an order in which neighbours are in one socket, and threads of one core.

    Their own numbers often alternate between sockets, or have the second threads at the end.
    """

    def position(cpu: int) -> tuple[int, ...]:
        numbers = []
        for name in ("physical_package_id", "core_id"):
            with suppress(OSError, ValueError):
                numbers.append(int(Path(place, f"cpu{cpu}", "topology", name).read_text()))
        return *numbers, cpu

    return sorted(cpus, key=position)


class Part:
    """The part of the node that this process may use; it changes from task to task."""

    def __init__(self) -> None:
        self._all = frozenset(os.sched_getaffinity(0))
        self._cores: list[int] = []
        self._gpus: list[int] | None = None

    def occupy(self, cores: list[int], gpus: list[int], memory: int | None) -> None:
        """Bind all threads to the cores, show the GPUs, and limit what memory is added from now."""
        if cores != self._cores:
            self._cores = cores
            # a node may pretend to have more cores than there are
            there = near_each_other(self._all)
            bound = {there[core % len(there)] for core in cores}
            for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - pathlib takes longer
                with suppress(OSError):  # the thread has ended
                    os.sched_setaffinity(int(thread), bound)
        if gpus != self._gpus:
            self._gpus = gpus
            for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
                known = os.environ.get(name, "").split(",")  # what the node's grant shows
                shown = [known[gpu] if known[-1] and gpu < len(known) else gpu for gpu in gpus]
                os.environ[name] = ",".join(map(str, shown))
        self._limit_memory(memory)

    def _limit_memory(self, memory: int | None) -> None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = hard
        if memory is not None:
            with open("/proc/self/statm") as file:  # noqa: PTH123 - pathlib takes longer
                used = int(file.read().split()[5]) * resource.getpagesize()
            wanted = used + memory
        if wanted != soft:
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def limit(memory: int | None = None, cores: list[int] | None = None) -> None:
    """Limit this process to what a node may use."""
    if memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if cores is not None:
        os.sched_setaffinity(0, cores)


def prepare(path: list[str] | None = None, modules: list[str] | None = None) -> None:
    """Import what tasks will need, using their search path."""
    if path is not None and modules:
        sys.path[:] = path
        load(modules)
        sys.stdout.flush()


def _perform(
    header: Header, body: bytes, channel: Callable[[int], Channel]
) -> tuple[Header, bytes]:
    """Run one task and return its answer, whether it succeeds or fails."""
    ticket = {"ticket": header["ticket"]}
    function = None
    sys.path[:] = header["path"]
    values = Values(Path(header["values"]))
    try:
        # before unpacking the function: its module may import mpi4py, which must not initialise MPI
        call = _mpi_caller(header, channel)
        function, args, kwargs = values.unpack(
            Packed(body, header["file"], tuple(header["buffers"]))
        )
        result = function(*args, **kwargs) if call is None else call(function, args, kwargs)
        packed = values.pack(result)
        return ticket | {"file": packed.file, "buffers": packed.buffers}, packed.data
    except BaseException as error:
        from qtide.core.errors import definition, own_lines

        text, data = _failure(error, values)
        return ticket | {"error": text, "lines": own_lines(error) or definition(function)}, data


def _mpi_caller(header: Header, channel: Callable[[int], Channel]) -> Callable[..., Any] | None:
    """What calls a process of an MPI task; None for any other task."""
    if terms := header.get("mpi"):
        return partial(import_module(MPI_CALLER).call, **terms)
    if terms := header.get("malleable"):
        said = channel(header["ticket"])
        return partial(import_module(MALLEABLE_CALLER).call, channel=said, **terms)
    return None


def _failure(error: BaseException, values: Values) -> tuple[str, bytes]:
    """The exception as text and pickled; empty bytes if it cannot be pickled."""
    import traceback

    text = "".join(traceback.format_exception_only(error)).strip()
    try:
        packed = values.pack(error)
    except (Unstorable, QtideError):
        return text, b""
    return text, packed.data


if __name__ == "__main__":
    main()
