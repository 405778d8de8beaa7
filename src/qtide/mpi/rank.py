"""One rank of an MPI task, on its way to the agent that calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rank:
    """A function as one rank of a gang: calling it meets the others, and gives it `comm`."""

    function: Callable[..., Any]
    rank: int
    size: int
    place: str
    """A file, new for every attempt, in which the first rank says where it is."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns on this rank."""
        from qtide.mpi.gang import called

        return called(self, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Our library is loaded before the function: its module may import mpi4py."""
        return Rank._loaded, (_Library(), self.function, self.rank, self.size, self.place)

    @staticmethod
    def _loaded(_: object, *terms: Any) -> Rank:
        return Rank(*terms)


class _Library:
    def __reduce__(self) -> tuple[Any, ...]:
        return load_library, ()


def load_library() -> None:
    """From now on, mpi4py does not begin MPI when it is imported: that would be too early."""
    import qtide.mpi.library  # noqa: F401 - the import is what is wanted
