"""The MPI library of this process: begun as a world of its own, ended only if that is safe."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from qtide.errors import UsageError
from qtide.mpi.pmi import Manager

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
