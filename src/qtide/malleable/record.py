"""What the root alone has: the hub, the keeper, and the ledger of the job."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

from qtide.errors import UsageError
from qtide.ledger.ledger import Ledger, Span
from qtide.malleable.growth import Newcomer
from qtide.malleable.hub import Hub
from qtide.malleable.keeper import Keeper
from qtide.malleable.nodes import LocalNodes, Nodes


class Record:
    """Opened when the root enters its job, closed when it leaves."""

    def __init__(self, runs: Path, name: str, cluster: str) -> None:
        self._name = name
        self._kind, _, self._argument = cluster.partition(":")
        if self._kind not in ("local", "slurm"):
            raise UsageError(
                f"a malleable job runs on local, slurm or slurm:PARTITION, not {cluster}"
            )
        self.ledger = Ledger(name, time.time)
        self.hub = Hub(self._host())
        self._run = self.ledger.span("run", "job")
        here = f"node/{socket.gethostname()}"
        self._own = [self.ledger.span("held", here), self.ledger.span("busy", here)]
        self._busy: dict[int, Span] = {}

    @cached_property
    def saves(self) -> Path:
        """Where the job saves."""
        return Path(tempfile.mkdtemp(prefix=f"qtide-{self._name}-"))

    @cached_property
    def keeper(self) -> Keeper:
        """Started with the first growth."""
        return Keeper(self.hub, self.ledger, self._nodes)

    def joined(self, newcomers: Collection[Newcomer], parts: dict[str, float]) -> None:
        """Newcomers are members now."""
        for each in newcomers:
            self._busy[each.identity] = self.ledger.span("busy", f"node/{each.name}")
        last = max(newcomers, key=lambda each: each.arrived or 0.0)
        assert last.granted is not None
        assert last.arrived is not None
        parts |= {"grant": last.granted - last.asked, "start": last.arrived - last.granted}

    def left(self, members: Collection[int]) -> None:
        """Members have left."""
        for each in members:
            self._busy.pop(each).close()
            self.keeper.release(each)

    def changed(self, before: int, after: int, parts: Mapping[str, float]) -> None:
        """Write a change down, with the seconds of its parts."""
        if after != before:
            what = "grew" if after > before else "shrank"
            self.ledger.note(what, "nodes", before=before, after=after, **parts)

    def note(self, what: str, **figures: float) -> None:
        """Write down what happened."""
        self.ledger.note(what, "nodes", **figures)

    def close(self, *, failed: bool) -> None:
        """Give everything back."""
        self.hub.close(0.0 if failed else None)
        if "keeper" in vars(self):
            self.keeper.close()
        for span in (*self._busy.values(), *self._own, self._run):
            span.close()
        self.ledger.close()

    async def _nodes(self) -> Nodes:
        if self._kind == "local":
            return LocalNodes()
        from qtide.malleable.slurm_nodes import SlurmNodes
        from qtide.slurm.options import Options

        options = Options(partition=self._argument or None)
        return await SlurmNodes.open(options, self._name, self.ledger)

    def _host(self) -> str:
        if self._kind == "local":
            return "127.0.0.1"
        from qtide.malleable.slurm_nodes import own_address

        return own_address()
