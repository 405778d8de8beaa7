"""A malleable task of a program: a job whose nodes come from the strategy of its run.

The task's function runs in the agents of its nodes. Its root tells the driver, through its agent's
link, how many nodes it wants and how fast it is. The driver starts the function on further nodes,
which join as newcomers, and says how many nodes the task may have at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from qtide.core.errors import NodeLost, QtideError
from qtide.mpi.checkpoint import Checkpoint
from qtide.mpi.control import (
    MEET_LIMIT,
    NOT_MET,
    ControlServer,
    MemberClient,
    NodesLost,
    NotNeeded,
    own_address,
)
from qtide.mpi.decisions import Decision
from qtide.mpi.gang import packed
from qtide.mpi.library import progress
from qtide.mpi.malleable_job import Job
from qtide.mpi.membership import MemberLeft, Membership
from qtide.mpi.sizing import Sizes

AHEAD = 64
"""How many newcomers are expected beyond the last one that has come."""
PAUSE = 0.05
"""Seconds between two reports to the driver if nothing has changed."""
POLL = 0.005
"""Seconds between two looks at what the driver says."""


class Channel(Protocol):
    """The line to the driver."""

    def say(self, message: dict[str, Any]) -> None:
        """Tell the driver something."""

    def heard(self) -> list[dict[str, Any]]:
        """Return what the driver has said since the last call."""


def call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    channel: Channel,
    sizes: Sequence[int],
    saved: str,
    invitation: str = "",
) -> Any:
    """Call the function with a job: as its root or, with an invitation, as one of its newcomers.

    A newcomer returns whether it became a member.
    """
    least, most = sizes
    try:
        job = TaskJob(least, most, channel, Path(saved), invitation)
    except NotNeeded:
        return False
    try:
        with job:
            result = function(*args, **kwargs, job=job)
    except NotNeeded:
        return False
    except MemberLeft:
        return job.size > 1
    except NodesLost as error:
        raise NodeLost(str(error)) from error  # the task runs again
    except Exception as error:
        job.client.fail(packed(error))
        raise
    finally:
        job.leave()
    return True if invitation else result


class TaskJob(Job):
    """The job of a malleable task."""

    def __init__(
        self, least: int, most: int, channel: Channel, saved: Path, invitation: str
    ) -> None:
        super().__init__(most, least=least)
        self.newcomer = bool(invitation)
        self._saved = saved
        self._steps: int | None = None
        if invitation:
            self.client: ControlServer | MemberClient = MemberClient(
                invitation, progress, outlives=True
            )
        else:
            self.client = ControlServer(own_address(), progress)
            self._decisions = TaskDecisions(self, self.client, channel, self.sizes, saved)
        self._membership = Membership(self.client)

    def __enter__(self) -> TaskJob:
        if isinstance(self._decisions, TaskDecisions):
            self._go_on(Checkpoint.newest(self._saved))
            others = self._decisions.founders()
            if others:
                self._begin_with(others)
        else:
            self._join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            if self._decisions is not None:
                self._decisions.close(None)  # before members go, whose nodes would come again
            self.comm.barrier()
            self.comm.raw.Free()

    def leave(self) -> None:
        """End the connections to the others; the root waits for them, but not for newcomers."""
        if self._decisions is not None:
            self._decisions.close(None)
        self.client.leave()

    def shrink(self, to: int) -> int:
        """Give nodes back, and want no more until `expand`. Returns the new size."""
        if isinstance(self._decisions, TaskDecisions):
            self._decisions.want(max(to, self.sizes.least))
        return super().shrink(to)

    def steps(self, count: int) -> Iterator[int]:
        """Count the steps of a loop; the driver is told how many are left."""
        self._steps = count
        return super().steps(count)

    @property
    def left(self) -> int | None:
        """How many steps are left; None if that is not known."""
        return None if self._steps is None else self._steps - int(vars(self.state).get("step", 0))


class TaskDecisions:
    """What the root of a malleable task decides, within what the driver lets it have."""

    lead = 0.0
    pending = False

    def __init__(
        self, job: TaskJob, server: ControlServer, channel: Channel, sizes: Sizes, saved: Path
    ) -> None:
        self.size = 1
        self.policy: Callable[[Any], int | None] | None = None
        self.checkpoints = saved
        self._job = job
        self._server = server
        self._channel = channel
        self._sizes = sizes
        self._wanted = sizes.most
        self._goal = sizes.least
        """How many nodes the task may have at most."""
        self._arrived: list[int] = []
        """Newcomers that wait to join."""
        self._over = False
        self._asked = self._answered = 0
        """The numbers of the last question to the driver, and of the last one that it answered."""
        self._laps, self._seconds = 0, 0.0
        """Rounds of the program's loop since the last report, and how long they took."""
        self._began: float | None = None
        """When the current round began; None if it cannot be compared with others."""
        self._reported = -PAUSE

    def founders(self) -> list[int]:
        """Tell the driver where newcomers join; wait for those without which it cannot begin."""
        for member in range(1, AHEAD + 1):
            invitation = self._expect(member)
        host, port, _, generation, key = invitation.split()
        self._channel.say({"invitation": f"{host} {port} {{}} {generation} {key}"})
        last = time.monotonic() + MEET_LIMIT
        while len(self._arrived) < self._sizes.least - 1:
            if time.monotonic() > last:
                raise QtideError(NOT_MET)
            time.sleep(POLL)
        return self._take()

    def want(self, nodes: int) -> None:
        """Tell the driver how many nodes the program wants at most."""
        if nodes != self._wanted:
            self._wanted = nodes
            self._forget_round()
            self._report()

    def others_waiting(self) -> int:
        """Return 0: the strategy knows who waits."""
        return 0

    def grow(
        self, to: int | None, least: int | None, wait: float, watch: Callable[[], None]
    ) -> Decision:
        """Ask the driver for nodes, wait for those that it promises, and decide which join."""
        self._end_round()
        wanted = min(to or self._sizes.preferred, self._sizes.most)
        if wanted != self._wanted:
            self._wanted = wanted
            self._forget_round()
        self._asked += 1
        self._report()
        last = time.monotonic() + wait
        while not self._complete(wanted) and time.monotonic() < last:
            watch()
            time.sleep(POLL)
        if self.size + len(self._arrived) < (least or 0):
            return {}
        return self._decide()

    def consult(self, job: Any) -> Decision:
        """Consult the policy, if there is one, and do what the driver says."""
        self._end_round()
        goal = self.policy(job) if self.policy else None
        if goal is not None:
            self.want(min(max(goal, self._sizes.least), self._sizes.most))
        self._listen()
        if time.monotonic() - self._reported >= PAUSE:
            self._report()
        return self._decide()

    def cancel(self) -> None:
        """Do nothing: the driver takes back what the program does not want."""

    def changed(
        self,
        new: Collection[int],
        left: Collection[int],
        parts: Mapping[str, float],
        total: float,
    ) -> None:
        """Tell the driver about a change."""
        self.size += len(new) - len(left)
        self._forget_round()
        self._report()
        self._began = time.monotonic()

    def lost(self, members: Collection[int]) -> None:
        """Tell the driver about lost members."""
        self.size -= len(members)
        self._forget_round()
        self._report()

    def close(self, error: BaseException | None) -> None:
        """Let no more newcomers join."""
        if not self._over:
            self._over = True
            self._channel.say({"over": True})
        for member in self._take():
            self._server.dismiss(member)

    def _expect(self, member: int) -> str:
        return self._server.expect(member, 0, partial(self._arrive, member))

    def _arrive(self, member: int) -> None:
        """Called in the newcomer's own thread."""
        self._expect(member + AHEAD)
        self._arrived.append(member)
        if self._over:
            self.close(None)

    def _take(self) -> list[int]:
        """The newcomers that have come since the last call; more may come meanwhile."""
        return [self._arrived.pop(0) for _ in range(len(self._arrived))]

    def _complete(self, wanted: int) -> bool:
        """Whether the driver has answered, and no more nodes come than are there."""
        self._listen()
        coming = min(wanted, self._goal) - self.size - len(self._arrived)
        return self._answered == self._asked and coming <= 0

    def _listen(self) -> None:
        for message in self._channel.heard():
            self._goal = message["goal"]
            self._answered = message["answer"]

    def _decide(self) -> Decision:
        """Let nodes go that the driver calls back, or let newcomers join that may."""
        self._began = time.monotonic()
        here = [each for each in self._take() if each in self._server.connected]
        may_have = max(min(self._goal, self._wanted), self._sizes.least)
        new = here[: max(0, may_have - self.size)]
        for each in here[len(new) :]:
            self._server.dismiss(each)
        if may_have < self.size:
            return {"shrink": may_have}
        return {"new": new} if new else {}

    def _end_round(self) -> None:
        if self._began is not None:
            self._laps += 1
            self._seconds += time.monotonic() - self._began
        self._began = None

    def _forget_round(self) -> None:
        self._laps, self._seconds, self._began = 0, 0.0, None

    def _report(self) -> None:
        """Tell the driver the size, what is wanted, and how fast the program is."""
        self._reported = time.monotonic()
        self._channel.say(
            {
                "size": self.size,
                "wanted": self._wanted,
                "laps": self._laps,
                "seconds": self._seconds,
                "left": self._job.left,
                "question": self._asked,
            }
        )
        self._laps, self._seconds = 0, 0.0
