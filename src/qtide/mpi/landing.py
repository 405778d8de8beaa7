"""Where collective calls of the program let MPI write.

MPI cannot take back a collective that is given up. Large messages that come later would overwrite
the arrays of the program, which it uses for something else by then, such as the next sum. So MPI
writes to memory of this module, which is copied when the call is complete and is left to MPI for
ever when it is given up. Short messages need none: those of a call that is given up come before
those that make the next communicator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qtide.mpi.control import NodesLost
from qtide.mpi.library import MPI
from qtide.mpi.watched import GIVEN_UP, complete

LONG = 4096
"""Bytes from which on MPI may not send a message at once, and so in the order of the calls."""
KEPT = 2**26
"""Bytes of the largest memory kept for the next call: fresh memory costs more than a copy."""
_spare: list[Any] = []


class Landing:
    """Memory in place of a buffer of the program."""

    def __init__(self, own: Any, user: Any, message: Any) -> None:
        self._own, self._user = own, user
        self.message = message
        """What MPI gets instead of the program's argument."""

    @classmethod
    def of(cls, message: Any, *, filled: bool) -> Landing | None:
        """Return memory for what is received, or None if it is short or none is needed.

        If MPI may leave parts of the buffer as they are, `filled` copies what is there.
        """
        plain = not isinstance(message, (list, tuple))
        try:
            view = memoryview(message if plain else message[0])
        except (TypeError, ValueError, IndexError):  # None, MPI.IN_PLACE, memory of a GPU
            return None
        if view.nbytes < LONG or not view.contiguous or view.readonly:
            return None
        array = np.asarray(view)
        user = array.ravel(order="K").view(np.uint8)
        own = _memory(user.nbytes)
        if filled or not plain:  # types and counts may leave gaps
            own[:] = user
        typed = own.view(array.dtype)
        return cls(own, user, typed if plain else [typed, *message[1:]])

    def arrive(self) -> None:
        """Copy what has come to the program's buffer."""
        self._user[:] = self._own
        whole = self._own.base
        if whole.nbytes <= KEPT and not _spare:
            _spare.append(whole)


def _memory(size: int) -> Any:
    whole = _spare.pop() if _spare else None
    if whole is None or whole.nbytes < size:
        whole = np.empty(size, np.uint8)
    return whole[:size]


def _landing(name: str, comm: Any, args: list[Any], kwargs: dict[str, Any]) -> Landing | None:
    """Put memory in place of the argument to which an operation of a communicator writes."""
    place, key = _receives(name)
    if name == "Bcast":
        root = args[1] if len(args) > 1 else kwargs.get("root", 0)
        if root < 0 or (root == comm.rank and not comm.is_inter):
            return None  # it sends
    if len(args) > place:
        message = args[place]
    elif key in kwargs:
        message = kwargs[key]
    else:
        return None
    sent = args[0] if args else kwargs.get("sendbuf")
    # some ranks get nothing of these, or nothing from missing neighbours
    filled = sent is MPI.IN_PLACE or name == "Exscan" or name.startswith("Neighbor_")
    found = Landing.of(message, filled=filled) if comm.size > 1 else None
    if found is not None:
        if len(args) > place:
            args[place] = found.message
        else:
            kwargs[key] = found.message
    return found


def _receives(name: str) -> tuple[int, str]:
    """Return the place and the name of the argument to which an operation writes."""
    return (0, "buf") if name == "Bcast" else (1, "recvbuf")


SENDING = ("Barrier", "Send", "Ssend", "Rsend", "Flush_buffer")
"""Blocking operations that write to no buffer."""


def blocking(start: Any, name: str) -> Any:
    """Return the blocking form of an operation that `start` begins."""
    place, _ = _receives(name)

    def sends(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            complete(start(self, *args, **kwargs), self.watch)
        except NodesLost:
            GIVEN_UP.append((args, kwargs))
            raise

    def operation(self: Any, *args: Any, **kwargs: Any) -> None:
        given, landed = list(args), None
        if not (len(args) > place and getattr(args[place], "nbytes", LONG) < LONG):
            landed = _landing(name, self, given, kwargs)
        try:
            complete(start(self, *given, **kwargs), self.watch)
        except NodesLost:  # MPI may still send: a request with an error has not always ended
            GIVEN_UP.append((given, kwargs))
            raise
        if landed is not None:
            landed.arrive()

    return sends if name in SENDING else operation
