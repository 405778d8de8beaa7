"""A malleable job: an MPI program whose number of nodes changes while it runs."""

from __future__ import annotations

import os
import pickle
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from qtide.core.errors import UsageError
from qtide.mpi import join
from qtide.mpi.checkpoint import Checkpoint
from qtide.mpi.communicator import Communicator
from qtide.mpi.control import JOIN, MemberClient, NodesLost
from qtide.mpi.control_line import MESSAGE_BYTES
from qtide.mpi.distributed import Distributed, Rows
from qtide.mpi.launcher import Launcher
from qtide.mpi.library import library, progress
from qtide.mpi.membership import MemberLeft, Membership, ReplicatedState
from qtide.mpi.newcomer import command
from qtide.mpi.sizing import Sizes

if TYPE_CHECKING:
    from qtide.mpi.decisions import Decisions

Policy = Callable[["Job"], int | None]
"""Returns how many nodes the job should have now, or None to leave it unchanged."""

START = Path.cwd()
"""The program's initial working directory; newcomers start there, even if it changes later."""
OWN_FILES = (__file__, str(Path(__file__).with_name("communicator.py")))
CLOSED = (
    "qtide: nodes were lost while they joined, so MPI can join no others; the job goes on with "
    "those that it has\n"
)
COOL_DOWN = 1.0
"""Seconds after a change of size during which the policy is not consulted."""
RUNS = "QTIDE_RUNS"
"""Environment variable with the folder for runs, used if the program names none."""
ENDED = "QTIDE_BLOCKS_ENDED"
"""Environment variable of a newcomer: how many `Job` blocks ended before it was started."""
CLUSTER = "QTIDE_CLUSTER"
"""Environment variable with the cluster, used if the program names none."""


class Job:
    """An MPI program with one rank per node; rank 0, the root, always stays.

    `expand`, `shrink`, `minimise`, `check`, `save` and `recover` are collective: all ranks call
    them. A newcomer starts the same program, and its first such call completes the call that
    brought it in.
    """

    _latest: ClassVar[Job | None] = None
    """The last job whose block this process has entered."""
    _ended: ClassVar[list[str]] = []
    """On a newcomer: the final states, packed, of the blocks that had ended when it was started."""
    _states: ClassVar[list[ReplicatedState]] = []
    """On the root: the final states of the blocks that have ended."""
    _client: MemberClient
    """The connection of a rank other than the root."""
    _passed: bool = False
    """Whether this block has ended: a newcomer of a later block only passes through it."""

    def __init__(
        self,
        most: int,
        *,
        least: int = 1,
        preferred: int | None = None,
        policy: Policy | None = None,
        cluster: str | None = None,
        cool_down: float = COOL_DOWN,
        folder: str | Path | None = None,
        name: str | None = None,
        resume: bool = True,
    ) -> None:
        self.sizes = Sizes(least, preferred or most, most)
        self.policy = policy
        passing = Job._latest is not None and Job._latest._passed
        self.newcomer = passing or JOIN in os.environ
        self._cool_down = cool_down
        self._cluster = cluster or os.environ.get(CLUSTER, "local")
        self._name = name or Path(sys.argv[0]).stem or "job"
        self._runs = Path(folder or os.environ.get(RUNS) or "qtide-runs").absolute()
        self._resume = resume
        self._block = 0
        """How many `Job` blocks of the program come before this one."""
        self._decisions: Decisions | None = None
        """What the root decides; None on all other ranks."""
        self._arriving = ""
        self._recoveries = 0
        self._checkpoint: Checkpoint | None = None
        self._closed = False
        """Whether it was said that no others can join."""

    def __enter__(self) -> Job:
        before, Job._latest = Job._latest, self
        if before is not None:
            if not hasattr(before, "_membership"):
                raise UsageError(
                    "an earlier Job block of this program could not begin, and newcomers would "
                    "come to that one; choose what fits (cluster=, folder=) before the first block"
                )
            self._block = before._block + 1
            if before._passed:
                self._arrive(before._client)
                return self
            if before._decisions is None:
                raise MemberLeft(0)  # the root begins the next block alone
        invitation = os.environ.pop(JOIN, None)
        launcher = None if invitation or before else Launcher.of_this_process()
        if launcher is not None and launcher.size > self.sizes.most:
            raise UsageError(
                f"the job was started with {launcher.size} processes, but has {self.sizes.most} at "
                "most; start fewer, or raise Job(most=...)"
            )
        if launcher is not None and launcher.rank > 0:
            invitation = launcher.invitation()
        if invitation is None:
            self._found(launcher)
        else:
            ended = int(os.environ.pop(ENDED, "0"))
            client = MemberClient(invitation, progress, ready=not ended)
            Job._ended = client.ask("ended")["states"] if ended else []
            self._arrive(client)
        return self

    def _arrive(self, client: MemberClient) -> None:
        """Join the job, or pass through a block that had ended before this newcomer came."""
        self._client, self._membership = client, Membership(client)
        self._passed = self._block < len(Job._ended)
        if self._passed:
            state = pickle.loads(b64decode(Job._ended[self._block]))
            self._membership.restore(state, {})
            self.comm.refuse(_ended_text)
            return
        if self._block:
            client.get_ready()
        self._join()

    def _join(self) -> None:
        """Wait for the order to join, and become a member."""
        self._arriving = self._membership.arrive()
        if self._arriving:  # those who were started with the root begin together with it
            self.comm.refuse(self._early_text)

    def _early_text(self) -> str:
        return (
            f"a newcomer used the communicator at {_site()}, but the others wait for it at "
            f"{self._arriving}; let that call be the first, at the head of the loop"
        )

    def _found(self, launcher: Launcher | None) -> None:
        """Begin as the root, with all processes that the launcher started with this one."""
        # only here: these imports would slow the start of newcomers
        from qtide.mpi.broker import ProgramStart, RootRecord
        from qtide.mpi.decisions import RootDecisions

        states = [b64encode(pickle.dumps(each)).decode() for each in Job._states]
        if sum(map(len, states)) > MESSAGE_BYTES // 2:
            raise UsageError(
                "the states of the Job blocks that have ended are too large for newcomers; keep "
                "large data in job.distributed(...), or delete it from job.state"
            )
        words = [*sys.argv, f"# block {self._block + 1}"] if self._block else sys.argv
        later = ["env", f"{ENDED}={self._block}"] if self._block else []
        start = ProgramStart(words, lambda: [*later, *command(sys.orig_argv, sys.argv, START)])
        record = RootRecord(
            self._runs,
            self._name,
            self._cluster,
            self.sizes.most,
            start,
            resume=self._resume,
            idle=progress,
        )
        self._decisions = RootDecisions(record, self.sizes, self.policy, self._cool_down)
        self._membership = Membership(record.server)
        record.server.asked = lambda member, _: record.server.send(
            [member], {"answer": 0, "states": states}
        )
        self._go_on(record.interrupted)
        if launcher is not None and launcher.size > 1:
            record.founded(launcher.meet(record.server))
            self._begin_with(list(range(1, launcher.size)))
        record.prepare()

    def _go_on(self, saved: Checkpoint | None) -> None:
        """Go on from what an interrupted run has saved (root only)."""
        if saved is None:
            return
        self._checkpoint = saved
        sys.stderr.write(f"qtide: goes on from what was saved in {saved.path}\n")
        self._restore(saved)

    def _begin_with(self, others: list[int]) -> None:
        """Let members join that begin together with the root."""
        ports = join.open_ports(len(others))
        if not self._membership.grow(ports, others, ""):
            raise NodesLost("a process of the job was lost while it began; start it again")
        join.close_ports(ports)
        assert self._decisions is not None
        self._decisions.size = 1 + len(others)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._passed:
            return
        try:
            if kind is None:
                self.comm.barrier()
        finally:
            if self._decisions is not None:
                self._decisions.cancel()
                self._decisions.close(error)
                Job._states.append(self.state)
            elif kind is None or kind is MemberLeft:
                self._membership.client.leave()

    @property
    def comm(self) -> Communicator:
        """The communicator, one object through all changes of size."""
        return self._membership.comm

    @property
    def size(self) -> int:
        """The current number of ranks."""
        return self._membership.size

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._membership.rank

    @property
    def root(self) -> bool:
        """Whether this is the rank that always stays."""
        return self.rank == 0

    @property
    def state(self) -> ReplicatedState:
        """The replicated state: set its attributes to the same values on all ranks."""
        return self._membership.state

    @property
    def pending(self) -> bool:
        """Whether a requested growth is still outstanding; only the root knows."""
        return self._decisions is not None and self._decisions.pending

    @property
    def lead(self) -> float:
        """Seconds that the last growth took, from the request until its nodes had joined."""
        return 1.0 if self._decisions is None else self._decisions.lead

    def begin(self, **values: Any) -> ReplicatedState:
        """Set the state's initial values; newcomers get the current ones. Returns the state."""
        state = vars(self.state)
        state.update(values | state)
        return self.state

    def steps(self, count: int) -> Iterator[int]:
        """Count the steps of a loop in `job.state.step`, up to `count`; newcomers begin with the
        current one, and after `recover` it goes on from the saved one."""
        state = self.begin(step=0)
        while state.step < count:
            recoveries = self._recoveries
            yield state.step
            if recoveries == self._recoveries:
                state.step += 1

    def distributed(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Any = float,
        *,
        block: int | None = None,
        fill: Callable[[Rows], Any] | None = None,
    ) -> Distributed:
        """Return an array whose rows are spread over the ranks; `fill` computes initial rows."""
        made, known = Distributed(shape, dtype, block), self._membership.arrays.get(name)
        if known is not None:
            if known.terms != made.terms:
                raise UsageError(
                    f"the array {name!r} has {_terms_text(known)}, not {_terms_text(made)}; give "
                    "another array another name"
                )
            return known
        if not self._passed:
            made.fill(self.rank, self.size, fill)
        self._membership.arrays[name] = made
        return made

    def expand(self, to: int | None = None, least: int | None = None, wait: float = 5.0) -> int:
        """Request nodes and wait up to `wait` seconds; those that are late join at a later call.

        Nodes join only if the job then has at least `least` nodes. Returns the new size.
        """
        if self._arrived():
            return self.size
        decision = None
        if self._decisions is not None:
            decision = self._terms(self._decisions.grow(to, least, wait, self._watch))
        self._follow(self.comm.bcast(decision))
        return self.size

    def shrink(self, to: int) -> int:
        """Release nodes and cancel a pending growth. Returns the new size."""
        if self._arrived():
            return self.size
        self.cancel()
        to = max(to, self.sizes.least)
        if to < self.size:
            self._follow({"shrink": to})
        return self.size

    def minimise(self) -> int:
        """Shrink to the minimum number of nodes. Returns the new size."""
        return self.shrink(self.sizes.least)

    def check(self) -> bool:
        """Consult the policy and let waiting nodes join. Returns whether the size changed."""
        if self._arrived():
            return True
        before = self.size
        decision = None
        if self._decisions is not None:
            self._decisions.policy = self.policy
            decision = self._terms(self._decisions.consult(self))
        self._follow(self.comm.bcast(decision))
        return self.size != before

    def cancel(self) -> None:
        """Cancel a pending growth."""
        if self._decisions is not None:
            self._decisions.cancel()

    def others_waiting(self) -> int:
        """How many other jobs wait for nodes of the cluster; only the root knows."""
        return 0 if self._decisions is None else self._decisions.others_waiting()

    def save(self) -> None:
        """Save the state and all arrays for `recover` and for a restart of the program."""
        before = self._checkpoint
        version = before.version + 1 if before else 1
        new = None
        if self._decisions is not None:
            new = Checkpoint(self._decisions.checkpoints, version)
        checkpoint = self.comm.bcast(new)
        checkpoint.path.mkdir(parents=True, exist_ok=True)
        for name, array in self._membership.arrays.items():
            checkpoint.write_rows(name, array)
        self.comm.barrier()
        if self.root:
            checkpoint.write_manifest((self.state, self._membership.shapes))
        self.comm.barrier()
        self._checkpoint = checkpoint
        if self.root and before:
            before.remove()

    def recover(self) -> None:
        """Continue after NodesLost with the remaining nodes, from the last checkpoint."""
        self.cancel()
        before = set(self._membership.members)
        self._membership.regroup()
        if self._decisions is not None:
            self._decisions.lost(before.difference(self._membership.members))
        checkpoint = self._checkpoint = self.comm.bcast(self._checkpoint)
        if checkpoint is None:
            raise NodesLost("nodes of the job are gone, and nothing was saved; call save() before")
        self._restore(checkpoint)
        self._recoveries += 1

    def _restore(self, checkpoint: Checkpoint) -> None:
        state, shapes = checkpoint.read_manifest()
        self._membership.restore(state, shapes)
        for name in shapes:
            array = self._membership.arrays[name]
            checkpoint.read_rows(name, array, self.rank, self.size)

    def _arrived(self) -> bool:
        """Return whether this is a newcomer's first collective call, where the others wait."""
        if not self._arriving:
            if self._passed:
                raise UsageError(_ended_text())
            return False
        place, self._arriving = self._arriving, ""
        self.comm.allow()
        if place != _site():
            raise UsageError(
                f"a newcomer came to {_site()}, but the others wait for it at {place}; let that "
                "call be the first, at the head of the loop"
            )
        return True

    def _watch(self) -> None:
        """Watch the members and let MPI progress while the root waits for nodes."""
        self.comm.watch()
        progress()

    def _terms(self, decision: dict[str, Any]) -> dict[str, Any]:
        """Add to the root's decision what its followers need."""
        if "new" not in decision:
            return decision
        if library().closed:
            self.cancel()
            if not self._closed:
                sys.stderr.write(CLOSED)
            self._closed = True
            return {}
        return decision | {"grow": join.open_ports(len(decision["new"])), "site": _site()}

    def _follow(self, decision: dict[str, Any]) -> None:
        """Carry out the root's decision."""
        began = time.monotonic()
        new: list[int] = []
        left: list[int] = []
        if "grow" in decision:
            done = self._membership.grow(decision["grow"], decision["new"], decision["site"])
            new = decision["new"] if done else []
        elif "shrink" in decision:
            leaving = self._membership.members[decision["shrink"] :]
            left = leaving if self._membership.shrink(decision["shrink"]) else []
        else:
            return
        if self._decisions is None:
            return
        if new:
            join.close_ports(decision["grow"])
        elif not left:
            self._decisions.cancel()
        self._decisions.changed(new, left, self._membership.parts, time.monotonic() - began)


def _ended_text() -> str:
    return (
        f"a newcomer of a later Job block came to {_site()}, in a block that has ended; let only "
        "the loop of that block use its communicator, and job.state alone end the loop"
    )


def _terms_text(array: Distributed) -> str:
    shape, dtype, block = array.terms
    return f"shape {shape}, type {dtype} and block {block}"


def _site() -> str:
    """Return the program's file and line that called into this module."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in OWN_FILES and frame.f_back is not None:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
