"""The MPI library of this process, started as a world of one process.

MPICH needs a process manager to initialise. `PmiServer` is one, in a thread of this process, so
that on every cluster each process is its own world and worlds can be joined later.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import socket
import threading
import zlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import cache_folder

INSTALL = "pip install 'qtide[mpi]'"


def _guard_ucx() -> None:
    """Load `c/ucx.c`, with which this process survives faults of UCX and MPICH at lost processes.

    It is built once per user, if there is a C compiler.
    """
    source = Path(__file__).parent / "c" / "ucx.c"
    name = f"ucx-{zlib.crc32(source.read_bytes()):08x}-{os.uname().machine}.so"
    with suppress(OSError, QtideError):
        built = cache_folder() / name
        if not built.exists():
            from qtide.mpi.build import build_alone  # only here: newcomers start quickly without it

            build_alone(source, built)
        ctypes.CDLL(str(built), ctypes.RTLD_GLOBAL)  # before UCX, whose functions it replaces


os.environ.setdefault("UCX_LOG_LEVEL", "error")  # it warns about leftovers of lost nodes
# its handler of signals allocates memory: a process that crashed there hung, and all others with it
os.environ.setdefault("UCX_HANDLE_ERRORS", "none")
_guard_ucx()
try:
    import mpi4py
except ImportError:
    raise UsageError(f"MPI programs need mpi4py and MPICH; install them: {INSTALL}") from None
# importing mpi4py.MPI would initialise MPI too early, as a world that cannot be joined
mpi4py.rc.initialize = mpi4py.rc.finalize = False
try:
    from mpi4py import MPI as MPI  # noqa: PLC0414 - others take it from here, after rc is set
except (ImportError, RuntimeError) as error:
    raise UsageError(
        f"mpi4py cannot load an MPI library ({error}); install MPICH: {INSTALL}"
    ) from None

END_LIMIT = 10.0
"""Seconds within which MPI must finalise; otherwise the process exits without it."""


@lru_cache(maxsize=1)
def library() -> Library:
    """Return the library of this process; the first call initialises MPI."""
    return Library()


def progress() -> None:
    """Let MPI progress, if this process has initialised it."""
    if library.cache_info().currsize:
        library().progress()


class Library:
    """mpi4py's module `MPI`, and the C library below it."""

    MPI = MPI

    def __init__(self) -> None:
        if MPI.Is_initialized():
            raise UsageError("import qtide.malleable before mpi4py.MPI, which has begun MPI")
        self._pmi = PmiServer()
        self.abandoned = False
        """Whether a call in some thread never returns; MPI then cannot be finalised."""
        self.stuck = False
        """Whether no MPI call would return."""
        self.closed = False
        """Whether MPI makes no communicator any more: two calls that make one were given up."""
        self._begin()
        self.alone = MPI.COMM_SELF.Dup()
        """The communicator of a job with one rank."""
        self._own = MPI.COMM_SELF.Dup()
        self._never = self._own.Irecv(bytearray(1), 0)

    def progress(self) -> None:
        """Let MPI progress while this process waits for something else.

        Sent data may still be in this process and leaves it only during MPI calls. Testing a
        receive that never completes is such a call; probing for one's own messages is not.
        """
        if not self.stuck:
            self._never.Test()

    def create(self) -> None:
        """Make a communicator, which MPI does only if it is not `closed`.

        MPICH agrees on the number of a new communicator with one call at a time: if two that are
        given up wait for their turn or have it, no other call gets it.
        """
        MPI.COMM_SELF.Dup().Free()

    def _begin(self) -> None:
        """Initialise via ctypes, which lets `PmiServer`'s thread run meanwhile; mpi4py does not."""
        self._c = ctypes.CDLL(None)
        if not hasattr(self._c, "MPI_Init_thread"):
            self._c = ctypes.CDLL(_library_file())
        provided = ctypes.c_int()
        self._c.MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(provided))
        PmiServer.clear_environment()
        _unlink_segments()
        for comm in (MPI.COMM_SELF, MPI.COMM_WORLD):  # derived communicators inherit it
            comm.Set_errhandler(MPI.ERRORS_RETURN)
        if provided.value != MPI.THREAD_MULTIPLE:
            raise UsageError(f"this MPI library does not support threads; use MPICH: {INSTALL}")
        atexit.register(self._end)

    def _end(self) -> None:
        if not (self.stuck or self.abandoned):
            faulthandler.dump_traceback_later(END_LIMIT, exit=True)
            self._never.Cancel()
            self._never.Wait()
            self._own.Free()
            self.alone.Free()
            self._c.MPI_Finalize()
            faulthandler.cancel_dump_traceback_later()
        self._pmi.answer_finalize()


def _library_file() -> str:
    """Return the path of the MPI library that mpi4py has loaded."""
    for file in _mapped():
        if "/libmpi.so" in file or "/libmpi_abi.so" in file:
            return file
    raise UsageError(f"mpi4py has loaded no MPICH; install it: {INSTALL}")


def _unlink_segments() -> None:
    """Unlink MPICH's shared memory: no other process opens it, and a kill would leave it behind."""
    for file in _mapped():
        if file.startswith("/dev/shm/mpich_shm_"):
            Path(file).unlink(missing_ok=True)


def _mapped() -> list[str]:
    """Return the files mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [words[5] for line in lines if len(words := line.split(maxsplit=5)) == 6]


ANSWERS = {
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
    "get_appnum": "cmd=appnum appnum=0 rc=0",
    "get_universe_size": "cmd=universe_size size=1 rc=0",
    "barrier_in": "cmd=barrier_out rc=0",
    "put": "cmd=put_result rc=0",
    "get": "cmd=get_result rc=-1 msg=unknown",  # no other process could have put a value
}
FINALIZE = "cmd=finalize_ack rc=0"


class PmiServer:
    """The process manager of a one-process world: answers MPICH's PMI requests."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self._name = f"qtide_{os.urandom(8).hex()}"
        os.environ |= {"PMI_FD": str(theirs.detach()), "PMI_RANK": "0", "PMI_SIZE": "1"}
        threading.Thread(target=self._serve, daemon=True, name="pmi").start()

    def answer_finalize(self) -> None:
        """Answer the finalize request in advance: MPICH sends it after Python has ended."""
        self._own.sendall(f"{FINALIZE}\n".encode())

    @staticmethod
    def clear_environment() -> None:
        """Remove the PMI variables, so that no child process uses them."""
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
