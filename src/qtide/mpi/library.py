"""The MPI library of this process: begun as a world of its own, ended only if that is safe."""

from __future__ import annotations

import atexit
import ctypes
import os
from functools import lru_cache
from typing import Any

from qtide.errors import UsageError
from qtide.mpi.pmi import Manager

INSTALL = "pip install 'qtide[mpi]'"


class Library:
    """mpi4py's module `MPI`, and the library below it."""

    def __init__(self) -> None:
        try:
            import mpi4py
        except ImportError:
            raise UsageError(
                f"MPI programs need mpi4py and MPICH; install them: {INSTALL}"
            ) from None
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        managed = "PMI_FD" in os.environ or "PMI_PORT" in os.environ
        self._manager = None if managed else Manager()
        os.environ.setdefault("UCX_LOG_LEVEL", "error")  # it complains of what a lost node left
        self.stuck = False
        """Whether a call of ours may never return: then MPI cannot be ended in order."""
        self.MPI = self._loaded()
        if not self.MPI.Is_initialized():
            self._begin()

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
        for comm in (self.MPI.COMM_SELF, self.MPI.COMM_WORLD):  # those made of them inherit it
            comm.Set_errhandler(self.MPI.ERRORS_RETURN)
        if provided.value != self.MPI.THREAD_MULTIPLE:
            raise UsageError(f"this MPI library does not support threads; use MPICH: {INSTALL}")
        atexit.register(self._end)

    def _end(self) -> None:
        if not self.stuck:
            self._c.MPI_Finalize()
        if self._manager is not None:
            self._manager.dismiss()


def _path() -> str:
    """The file of the library that mpi4py has loaded."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123 - not a file on disk
        for line in maps:
            if "/libmpi.so" in line or "/libmpi_abi.so" in line:
                return line.split(maxsplit=5)[5].strip()
    raise UsageError(f"mpi4py has loaded no MPICH; install it: {INSTALL}")


@lru_cache(maxsize=1)
def library() -> Library:
    """The library, begun when it is first needed."""
    return Library()
