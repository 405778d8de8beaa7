"""What a program hears when nodes that it computes with are gone."""

from __future__ import annotations

from collections.abc import Collection

from qtide.errors import PhaseError


class NodesLost(PhaseError):  # noqa: N818 - what happened
    """Processes of the communicator are gone; `recover()` gives a fresh one."""

    def __init__(self, text: str, ranks: Collection[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(sorted(ranks))
