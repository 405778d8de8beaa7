"""The MPI library of this process: begun as a world of its own, ended only if that is safe."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import socket
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TextIO

from qtide.core.errors import QtideError, UsageError

ANSWERS = {
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
    "get_appnum": "cmd=appnum appnum=0 rc=0",
    "get_universe_size": "cmd=universe_size size=1 rc=0",
    "barrier_in": "cmd=barrier_out rc=0",
    "put": "cmd=put_result rc=0",
    "get": "cmd=get_result rc=-1 msg=unknown",  # no one else could have put it
}
LAST = "cmd=finalize_ack rc=0"


class Manager:
    """Answers what the MPI library of this process asks while it begins and ends."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self._name = f"qtide_{os.urandom(8).hex()}"
        os.environ |= {"PMI_FD": str(theirs.detach()), "PMI_RANK": "0", "PMI_SIZE": "1"}
        threading.Thread(target=self._serve, daemon=True, name="pmi").start()

    def dismiss(self) -> None:
        """Answer the last question in advance: it is asked when Python has already ended."""
        self._own.sendall(f"{LAST}\n".encode())

    @staticmethod
    def forget() -> None:
        """Take our variables away, so that a child process does not believe to be managed."""
        for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            os.environ.pop(name, None)

    def _serve(self) -> None:
        with self._own.makefile("r", encoding="ascii", newline="\n") as questions:
            for line in questions:
                self._own.sendall(f"{self._answer(line)}\n".encode())

    def _answer(self, line: str) -> str:
        command = dict(word.partition("=")[::2] for word in line.split()).get("cmd", "")
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self._name} rc=0"
        return ANSWERS.get(command, "cmd=error rc=-1")


LIMIT = 60.0
"""Seconds within which all processes have to have been started."""
VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE")

Ask = Callable[[str], Mapping[str, str]]


class Launcher:
    """Speaks the first version of PMI's wire protocol, as a client."""

    def __init__(self, rank: int, size: int, handle: int) -> None:
        self.rank = rank
        self.size = size
        self._handle = handle

    @staticmethod
    def of_this_process() -> Launcher | None:
        """None if this process was started alone."""
        if "PMI_FD" in os.environ:
            handle, rank, size = (int(os.environ.pop(name)) for name in VARIABLES)
            return Launcher(rank, size, handle)
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
            raise UsageError(
                "srun has started several processes that do not know each other; use "
                "srun --mpi=pmi2, or start one process"
            )
        return None

    def exchanged(self, word: str) -> list[str]:
        """What each process says to all, by rank; the launcher is not needed any more then."""
        with socket.socket(fileno=self._handle) as line:
            line.settimeout(LIMIT)
            try:
                with line.makefile("rw", encoding="ascii", newline="\n") as stream:
                    return self._exchanged(partial(_answer, stream), word)
            except (OSError, KeyError) as error:
                raise QtideError(f"the launcher of this MPI program failed: {error!r}") from None

    def _exchanged(self, ask: Ask, word: str) -> list[str]:
        ask("cmd=init pmi_version=1 pmi_subversion=1")
        space = ask("cmd=get_my_kvsname")["kvsname"]
        ask(f"cmd=put kvsname={space} key=qtide-{self.rank} value={word}")
        ask("cmd=barrier_in")
        answers = [ask(f"cmd=get kvsname={space} key=qtide-{rank}") for rank in range(self.size)]
        ask("cmd=finalize")
        return [answer["value"] for answer in answers]


def _answer(stream: TextIO, text: str) -> Mapping[str, str]:
    stream.write(f"{text}\n")
    stream.flush()
    return dict(word.partition("=")[::2] for word in stream.readline().split())


os.environ.setdefault("UCX_LOG_LEVEL", "error")  # it complains of what a lost node left
try:
    import mpi4py

    # importing its module MPI would begin MPI, too early and as a world that cannot be joined
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
except ImportError:
    mpi4py = None  # type: ignore[assignment]

INSTALL = "pip install 'qtide[mpi]'"
END_LIMIT = 10.0
"""Seconds within which MPI has to end; otherwise the process ends without it."""


class Library:
    """mpi4py's module `MPI`, and the library below it."""

    def __init__(self) -> None:
        if mpi4py is None:
            raise UsageError(f"MPI programs need mpi4py and MPICH; install them: {INSTALL}")
        self._manager = Manager()
        self.stuck = False
        """Whether a call of ours may never return: then MPI cannot be ended in order."""
        self.MPI = self._loaded()
        if self.MPI.Is_initialized():
            raise UsageError("import qtide.malleable before mpi4py.MPI, which has begun MPI")
        self._begin()
        self._own = self.MPI.COMM_SELF.Dup()
        self._never = self._own.Irecv(bytearray(1), 0)

    def progress(self) -> None:
        """Let MPI work while this process waits for something else.

        What was sent may still be in this process, and only leaves it while MPI is called. A test
        of a message that never comes is such a call; a probe of one's own messages is not.
        """
        if not self.stuck:
            self._never.Test()

    def _loaded(self) -> Any:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise UsageError(
                f"mpi4py cannot load an MPI library ({error}); install MPICH: {INSTALL}"
            ) from None
        return MPI

    def _begin(self) -> None:
        """By ctypes, which lets our manager's thread work meanwhile; mpi4py would not."""
        self._c = ctypes.CDLL(None)
        if not hasattr(self._c, "MPI_Init_thread"):
            self._c = ctypes.CDLL(_path())
        provided = ctypes.c_int()
        self._c.MPI_Init_thread(None, None, self.MPI.THREAD_MULTIPLE, ctypes.byref(provided))
        Manager.forget()
        _forget_segments()
        for comm in (self.MPI.COMM_SELF, self.MPI.COMM_WORLD):  # those made of them inherit it
            comm.Set_errhandler(self.MPI.ERRORS_RETURN)
        if provided.value != self.MPI.THREAD_MULTIPLE:
            raise UsageError(f"this MPI library does not support threads; use MPICH: {INSTALL}")
        atexit.register(self._end)

    def _end(self) -> None:
        if not self.stuck:
            faulthandler.dump_traceback_later(END_LIMIT, exit=True)
            self._never.Cancel()
            self._never.Wait()
            self._own.Free()
            self._c.MPI_Finalize()
            faulthandler.cancel_dump_traceback_later()
        self._manager.dismiss()


def _path() -> str:
    """The file of the library that mpi4py has loaded."""
    for file in _mapped():
        if "/libmpi.so" in file or "/libmpi_abi.so" in file:
            return file
    raise UsageError(f"mpi4py has loaded no MPICH; install it: {INSTALL}")


def _forget_segments() -> None:
    """Take the names of MPICH's segments away: no one else needs them, and a kill leaves them."""
    for file in _mapped():
        if file.startswith("/dev/shm/mpich_shm_"):
            Path(file).unlink(missing_ok=True)


def _mapped() -> list[str]:
    """The files that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [words[5] for line in lines if len(words := line.split(maxsplit=5)) == 6]


@lru_cache(maxsize=1)
def library() -> Library:
    """The library, begun when it is first needed."""
    return Library()


def progress() -> None:
    """Let MPI work, if this process has begun with it."""
    if library.cache_info().currsize:
        library().progress()
