"""What the root alone has: the hub, the keeper, and the ledger of the job."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from qtide.errors import UsageError
from qtide.jobs.job import Job
from qtide.ledger.ledger import Ledger, Span
from qtide.malleable.growth import Newcomer
from qtide.malleable.keeper import Keeper
from qtide.malleable.nodes import LocalNodes, Nodes
from qtide.mpi.hub import Hub, own_address
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.spec import Spec
from qtide.system.files import lock


class Record:
    """Opened when the root enters its job, closed when it leaves."""

    def __init__(self, runs: Path, name: str, cluster: str) -> None:
        self._name = name
        self._kind, _, self._argument = cluster.partition(":")
        if self._kind not in ("local", "slurm"):
            raise UsageError(
                f"a malleable job runs on local, slurm or slurm:PARTITION, not {cluster}"
            )
        spec = Spec(sys.argv[0], sys.argv[1:], "mpi", cluster)
        self._folder = RunFolder.create(runs, f"{name}-{stamp()}", spec)
        self._lock = os.open(self._folder.journal, os.O_RDWR | os.O_CREAT, 0o644)
        lock(self._lock)  # so that others see that it is running
        self.ledger = Ledger(self._folder.name, time.time, self._folder.ledger)
        self.hub = Hub(self._host())
        self._run = self.ledger.span("run", "job")
        here = f"node/{socket.gethostname()}"
        self._own = [self.ledger.span("held", here), self.ledger.span("busy", here)]
        self._busy: dict[int, Span] = {}
        self._founders: dict[int, Span] = {}

    @cached_property
    def saves(self) -> Path:
        """Where the job saves."""
        return (self._folder.path / "saved").absolute()

    @cached_property
    def keeper(self) -> Keeper:
        """Started with the first growth."""
        return Keeper(self.hub, self.ledger, self._nodes, len(self._founders) + 1)

    def founded(self, names: Sequence[str]) -> None:
        """These nodes were there from the beginning, and are not ours to give back."""
        for identity, name in enumerate(names, 1):
            self._founders[identity] = self.ledger.span("held", f"node/{name}")
            self._busy[identity] = self.ledger.span("busy", f"node/{name}")

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
            if each in self._founders:
                self._founders[each].close()
            else:
                self.keeper.release(each)

    def lost(self, members: Collection[int]) -> None:
        """Members are gone."""
        self.left(members)
        self.ledger.note("lost nodes", "nodes", lost=len(members), nodes=1 + len(self._busy))

    def changed(self, before: int, after: int, parts: Mapping[str, float]) -> None:
        """Write a change down, with the seconds of its parts."""
        if after != before:
            what = "grew" if after > before else "shrank"
            self.ledger.note(what, "nodes", before=before, after=after, **parts)

    def close(self, error: BaseException | None) -> None:
        """Give everything back."""
        self.hub.close(None if error is None else 0.0)
        if "keeper" in vars(self):
            self.keeper.close()
        for span in (*self._busy.values(), *self._founders.values(), *self._own, self._run):
            span.close()
        self.ledger.close()
        self._folder.finish({"value": None} if error is None else {"error": repr(error)})
        os.close(self._lock)

    async def _nodes(self) -> Nodes:
        if self._kind == "local":
            return LocalNodes()
        from qtide.malleable.slurm_nodes import SlurmNodes
        from qtide.slurm.options import Options

        options = Options(partition=self._argument or None)
        return await SlurmNodes.open(options, self._job())

    def _job(self) -> Job:
        return Job(self._folder.name, self.ledger, self._folder.values)

    def _host(self) -> str:
        if self._kind == "local":
            return "127.0.0.1"
        return own_address()
