"""A malleable job: the part of an MPI program that grows and shrinks."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from qtide.core.errors import UsageError
from qtide.mpi import join
from qtide.mpi.communicator import Communicator
from qtide.mpi.control import JOIN, MemberClient, NodesLost
from qtide.mpi.distributed import Distributed, Rows
from qtide.mpi.library import Launcher
from qtide.mpi.membership import (
    MemberLeft,
    Membership,
    ReplicatedState,
    gathered_founders,
    told_by_launcher,
)

if TYPE_CHECKING:
    from qtide.mpi.broker import RootRecord
    from qtide.mpi.membership import Growth


@dataclass(frozen=True)
class Saved:
    """One version in a folder of its own; it counts once its manifest is there."""

    folder: Path
    version: int

    @property
    def path(self) -> Path:
        """Where this version is."""
        return self.folder / f"{self.version}"

    def write_rows(self, name: str, array: Distributed) -> None:
        """Write this rank's rows to where they belong in the whole."""
        width = _width(array)
        file = os.open(self.path / f"{name}.rows", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            at = 0
            for first, count in _runs(array.rows):
                data = np.ascontiguousarray(array.local[at : at + count]).tobytes()
                _write(file, data, int(first) * width)
                at += count
            os.fsync(file)
        finally:
            os.close(file)

    def read_rows(self, name: str, array: Distributed, rank: int, size: int) -> None:
        """Give a rank its rows again."""
        file = self.path / f"{name}.rows"
        whole = np.memmap(file, array.dtype, "r", shape=array.shape)
        array.place(rank, size, np.array(whole[array.layout.owned(rank, size)]))

    def write_manifest(self, content: Any) -> None:
        """From now on, this version counts."""
        new = self.path / "manifest.new"
        new.write_bytes(pickle.dumps(content))
        new.replace(self.path / "manifest")

    def read_manifest(self) -> Any:
        """The replicated state, and which arrays there are."""
        return pickle.loads((self.path / "manifest").read_bytes())

    def remove(self) -> None:
        """Make room: a later version counts."""
        for file in self.path.iterdir() if self.path.is_dir() else ():
            file.unlink()
        if self.path.is_dir():
            self.path.rmdir()


def _width(array: Distributed) -> int:
    return int(array.dtype.itemsize * np.prod(array.shape[1:], dtype=np.int64))


def _runs(rows: Rows) -> list[tuple[int, int]]:
    """Stretches of successive rows: the first, and how many."""
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    parts = np.split(rows, breaks)
    return [(int(part[0]), len(part)) for part in parts]


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done


Policy = Callable[["Job"], int | None]
"""Says how many nodes a job should have now; None if as many as it has."""

COOL_DOWN = 1.0
"""Seconds after a change in which no policy is asked."""
CLUSTER = "QTIDE_CLUSTER"
"""The variable that names the cluster if the program does not."""


@dataclass(frozen=True)
class Sizes:
    """How many nodes a job has at least, likes to have, and has at most."""

    least: int
    preferred: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.preferred <= self.most:
            raise UsageError(
                f"a job needs 1 <= least <= preferred <= most, not {self.least}, "
                f"{self.preferred} and {self.most}"
            )


class Job:
    """The nodes of an MPI program, with one rank on each; rank 0, the root, always stays.

    All ranks call `expand`, `shrink`, `minimise`, `check`, `save` and `recover` together. Newcomers
    start the same program; their first such call returns together with the one that brought them.
    """

    def __init__(
        self,
        most: int,
        *,
        least: int = 1,
        preferred: int | None = None,
        policy: Policy | None = None,
        cluster: str | None = None,
        cool_down: float = COOL_DOWN,
        folder: str | Path = "qtide-runs",
        name: str | None = None,
    ) -> None:
        self.sizes = Sizes(least, preferred or most, most)
        self.policy = policy
        self.newcomer = JOIN in os.environ
        self._cool_down = cool_down
        self._cluster = cluster or os.environ.get(CLUSTER, "local")
        self._name = name or Path(sys.argv[0]).stem or "job"
        self._runs = Path(folder).absolute()
        self._record: RootRecord | None = None
        self._growth: Growth | None = None
        self._arriving = ""
        self._changed = -float("inf")
        self._saved: Saved | None = None
        self.lead = 1.0
        """Seconds that the last growth took, from the request until its nodes computed."""

    def __enter__(self) -> Job:
        told = os.environ.pop(JOIN, None)
        launcher = None if told else Launcher.of_this_process()
        if launcher is not None and launcher.size > self.sizes.most:
            raise UsageError(
                f"the job was started with {launcher.size} processes, but has {self.sizes.most} at "
                "most; start fewer, or raise Job(most=...)"
            )
        if launcher is not None and launcher.rank > 0:
            told = told_by_launcher(launcher)
        if told is None:
            self._found(launcher)
        else:
            self._crew = Membership(MemberClient.told(told))
            self._arriving = self._crew.arrive()
        return self

    def _found(self, launcher: Launcher | None) -> None:
        """Begin as the root, with all processes that were started together with this one."""
        from qtide.mpi.broker import RootRecord  # newcomers start without what it needs

        self._record = RootRecord(self._runs, self._name, self._cluster)
        self._crew = Membership(self._record.hub, self._record.hub)
        if launcher is not None and launcher.size > 1:
            names = gathered_founders(self._record.hub, launcher)
            self._record.founded(names)
            others = list(range(1, launcher.size))
            ports = join.opened(len(others))
            if not self._crew.grow(ports, others, ""):
                raise NodesLost("a process of the job was lost while it began; start it again")
            join.closed(ports)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.comm.barrier()
        finally:
            station = self._crew.station
            if self._record is not None:
                self.cancel()
                self._record.close(error)
            elif isinstance(station, MemberClient) and (kind is None or kind is MemberLeft):
                station.leave()

    @property
    def comm(self) -> Communicator:
        """The present communicator."""
        if self._arriving:
            raise UsageError(
                f"a newcomer used the communicator at {_site()}, but the others wait for it at "
                f"{self._arriving}; let that call be the first, at the head of the loop"
            )
        return self._crew.comm

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._crew.size

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._crew.comm.rank

    @property
    def root(self) -> bool:
        """Whether this is the rank that always stays."""
        return self.rank == 0

    @property
    def state(self) -> ReplicatedState:
        """What every rank has: set its attributes to the same values on all ranks."""
        return self._crew.state

    @property
    def pending(self) -> bool:
        """Whether a growth was asked for that has not come yet; known to the root."""
        return self._growth is not None and not self._growth.finished

    def begin(self, **values: Any) -> ReplicatedState:
        """The state, with these values at the beginning; newcomers get the present ones."""
        if not self.newcomer:
            self._crew.state = ReplicatedState(**(values | vars(self._crew.state)))
        return self._crew.state

    def distributed(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Any = float,
        *,
        block: int | None = None,
        fill: Callable[[Rows], Any] | None = None,
    ) -> Distributed:
        """An array with its rows spread over the ranks, filled when it is first made."""
        if name not in self._crew.arrays:
            array = Distributed(shape, dtype, block)
            array.filled(self.rank, self.size, fill)
            self._crew.arrays[name] = array
        return self._crew.arrays[name]

    def expand(self, to: int | None = None, least: int | None = None, wait: float = 5.0) -> int:
        """Grow, waiting for up to `wait` seconds; what comes later joins at a later call.

        With `least`, fewer nodes than that are not taken in. Gives the size afterwards.
        """
        if self._arrived():
            return self.size
        decision = self._grown(to, least, wait) if self.root else None
        self._follow(self.comm.bcast(decision))
        return self.size

    def shrink(self, to: int) -> int:
        """Give nodes back, and give up a growth that is pending; gives the size afterwards."""
        if self._arrived():
            return self.size
        self.cancel()
        to = max(to, self.sizes.least)
        if to < self.size:
            self._follow({"shrink": to})
        return self.size

    def minimise(self) -> int:
        """Keep the least number of nodes; gives the size afterwards."""
        return self.shrink(self.sizes.least)

    def check(self) -> bool:
        """Ask the policy, and take in nodes that have come; True if the size has changed."""
        if self._arrived():
            return True
        before = self.size
        decision = self._judged() if self.root else None
        self._follow(self.comm.bcast(decision))
        return self.size != before

    def cancel(self) -> None:
        """Give up a growth that has not come yet."""
        if self._growth is not None and self._record is not None:
            self._record.keeper.cancel(self._growth)
        self._growth = None

    def save(self) -> None:
        """Save the state and all arrays; what is saved survives the loss of nodes."""
        before = self._saved
        version = before.version + 1 if before else 1
        saved = self.comm.bcast(Saved(self._record.saves, version) if self._record else None)
        saved.path.mkdir(parents=True, exist_ok=True)
        for name, array in self._crew.arrays.items():
            saved.write_rows(name, array)
        self.comm.barrier()
        if self.root:
            shapes = {
                n: (a.shape, a.dtype.str, a.layout.block) for n, a in self._crew.arrays.items()
            }
            saved.write_manifest((self.state, shapes))
        self.comm.barrier()
        self._saved = saved
        if self.root and before:
            before.remove()

    def recover(self) -> None:
        """After NodesLost: go on with those that are left, from what was saved last."""
        self.cancel()
        before = set(self._crew.members)
        self._crew.regroup()
        self._changed = time.monotonic()
        if self._record is not None:
            self._record.lost(before.difference(self._crew.members))
        saved = self._saved = self.comm.bcast(self._saved)
        if saved is None:
            raise NodesLost("nodes of the job are gone, and nothing was saved; call save() before")
        state, shapes = saved.read_manifest()
        self._crew.state = state
        for name, terms in shapes.items():
            array = self._crew.arrays.setdefault(name, Distributed(*terms))
            saved.read_rows(name, array, self.rank, self.size)

    def _arrived(self) -> bool:
        """Whether this is a newcomer's first call, which brought it here."""
        if not self._arriving:
            return False
        place, self._arriving = self._arriving, ""
        if place != _site():
            raise UsageError(
                f"a newcomer came to {_site()}, but the others wait for it at {place}; let that "
                "call be the first, at the head of the loop"
            )
        return True

    def _grown(self, to: int | None, least: int | None, wait: float) -> dict[str, Any]:
        """Ask for nodes, if need be, and see who has come."""
        goal = min(to or self.sizes.preferred, self.sizes.most)
        self._ask(goal)
        if self._growth is None:
            return {}
        self._growth.wait(wait, self.comm.watch)
        enough = self.size + len(self._growth.ready) >= (least or self.size + 1)
        return self._taking() if enough else {}

    def _judged(self) -> dict[str, Any]:
        """What the policy wants, and who has come meanwhile."""
        calm = time.monotonic() - self._changed > self._cool_down
        goal = self.policy(self) if self.policy and calm else None
        if goal is not None and (goal := min(max(goal, self.sizes.least), self.sizes.most)):
            if goal < self.size:
                return {"shrink": goal}
            if goal == self.size:
                self.cancel()
            self._ask(goal)
        settled = self._growth is not None and not self._growth.pending
        return self._taking() if settled else {}

    def _ask(self, goal: int) -> None:
        if self._growth is not None and self._growth.finished:
            self._growth = None
        if self._growth is None and goal > self.size:
            assert self._record is not None
            self._growth = self._record.keeper.grow(goal - self.size)

    def _taking(self) -> dict[str, Any]:
        assert self._growth is not None
        ready = self._growth.ready
        if not ready:
            return {}
        ports = join.opened(len(ready))
        return {"grow": ports, "new": [each.identity for each in ready], "site": _site()}

    def _follow(self, decision: dict[str, Any]) -> None:
        """Do what the root has decided."""
        began, before = time.monotonic(), self.size
        if "grow" in decision:
            done = self._crew.grow(decision["grow"], decision["new"], decision["site"])
            self._after_growth(decision, done)
        elif "shrink" in decision:
            leaving = self._crew.members[decision["shrink"] :]
            done = self._crew.shrink(decision["shrink"])
            if self._record is not None and done:
                self._record.left(leaving)
        else:
            return
        self._changed = time.monotonic()
        if self._record is not None:
            parts = self._crew.parts | {"total": self._changed - began}
            self._record.changed(before, self.size, parts)

    def _after_growth(self, decision: dict[str, Any], done: bool) -> None:
        if self._record is None or self._growth is None:
            return
        ready = [each for each in self._growth.newcomers if each.identity in decision["new"]]
        if not done:
            self.cancel()
            return
        join.closed(decision["grow"])
        for each in ready:
            each.taken = True
        self._record.joined(ready, self._crew.parts)
        self.lead = sum(self._crew.parts.values())


def _site() -> str:
    """Where the program called us: the first place outside of this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
