"""A companion: a job that only holds nodes, for as long as its driver holds a pipe to it.

salloc runs a `cat` that reads from us. It ends, and Slurm takes the nodes back, as soon as we
close the pipe or die. The command prints the names of its nodes, so we need not ask for them.

A heterogeneous companion holds nodes and a QPU, granted together. If the QPU's component is
cancelled, salloc takes the whole job to be over: it sends its command a SIGHUP and releases nothing
later. So the command ignores the signal, and cancels the job itself when our end of the pipe is
closed. It also kills salloc, which otherwise may wait forever if its command and its job end at the
same moment.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed, reason
from qtide.backends.clusters.slurm.queue import entries
from qtide.core.errors import NotEnoughNodes

NAMES = (
    'names() { case "$1" in *\\[*) scontrol show hostnames "$1" | tr "\\n" , ;; '
    '*) echo "$1" ;; esac; }; '
)
"""Slurm itself expands its node lists; a single name needs no command, which takes 10 ms."""
HOLD = (
    *("/bin/sh", "-c"),
    NAMES + 'echo "$SLURM_JOB_ID $(names "$SLURM_JOB_NODELIST")" && exec cat',
)
HOLD_BOTH = (
    *("/bin/sh", "-c"),
    'trap "" HUP; '
    + NAMES
    + 'echo "$SLURM_JOB_ID $(names "$SLURM_JOB_NODELIST_HET_GROUP_0") $SLURM_JOB_ID_HET_GROUP_1" '
    '&& cat; scancel "$SLURM_JOB_ID"; kill -KILL "$PPID"',
)
REVOKED = re.compile(r"Job (?:allocation )?(\d+) has (?:been revoked|exceeded its time limit)")
NUMBERED = re.compile(r"(?:Pending|Granted) job allocation (\d+)")
POLL_FIRST, POLL_MOST = 0.005, 1.0  # seconds
END_LIMIT = 120.0
"""Seconds within which Slurm has to take nodes back; its own KillWait is 30 by default."""
POLITE = 5.0
"""Seconds that salloc may take to end by itself,"""
GRACE = 0.5
"""or to end once its job is over."""
ABSENT = ("contact slurm controller", "Socket timed out", "backup controller", "Zero Bytes")
"""What Slurm's commands print while its controller is down, as during a restart."""


class SlurmRefused(SlurmFailed, NotEnoughNodes):
    """Slurm refuses these nodes: strategies are told that none will come."""


class ControllerAway(SlurmRefused):
    """Slurm's controller does not answer at the moment."""


class Companion:
    """One salloc, from the request to the end."""

    def __init__(
        self, slurm: Slurm, process: asyncio.subprocess.Process, sought: str = "nodes"
    ) -> None:
        self._slurm = slurm
        self._sought = sought
        self._process = process
        self._said: list[str] = []
        self._numbered = asyncio.Event()
        self._withdrawn = False
        self._over = False
        self._losses: dict[int | None, asyncio.Event] = {}
        self.job: int | None = None
        self.qpu_job: int | None = None
        """The component that holds a QPU, if the job is heterogeneous."""
        self.nodes: list[str] = []
        self.silent: set[str] = set()
        """Nodes that do not respond: it may take Slurm long to get them back."""
        self._listener = asyncio.create_task(self._listen())
        self.granted: asyncio.Task[bool] = asyncio.create_task(self._grant())
        """True once the nodes are granted; False if withdrawn; raises if Slurm refuses."""

    @staticmethod
    async def submit(slurm: Slurm, words: list[str], sought: str = "nodes") -> Companion:
        """Submit a request; with a colon among the words, it has two components."""
        hold = HOLD_BOTH if ":" in words else HOLD
        process = await slurm.start(*words, *hold, stdin=asyncio.subprocess.PIPE)
        return Companion(slurm, process, sought)

    @property
    def lease_job(self) -> int | None:
        """The job, or the component of one, that holds a QPU."""
        return self.qpu_job or self.job

    async def gone(self) -> str:
        """Wait until the companion has ended by itself; return the reason."""
        await self._loss(self.job).wait()
        return self._said[-1].removeprefix("salloc: ") if self._said else "it gave no reason"

    async def qpu_gone(self) -> None:
        """Wait until the component that holds a QPU, or the whole job, has ended."""
        await self._loss(self.lease_job).wait()

    async def end_qpu(self) -> None:
        """Give the QPU back, and wait until Slurm has it; nodes that were granted with it stay."""
        if self.qpu_job is None:
            await self.end()
            return
        if not self._loss(self.qpu_job).is_set():
            await self._cancel(self.qpu_job)
        await self._given_back(END_LIMIT, set(), self.qpu_job)

    async def withdraw(self) -> bool:
        """Leave the queue; True if the nodes were granted in the meantime."""
        self._withdrawn = True
        await self._until_numbered()
        await self._cancel(self.job, "--state=PENDING")
        await asyncio.wait({self.granted}, timeout=POLITE)
        return self.granted.done() and self.granted.result()

    async def has(self, node: str) -> bool:
        """Whether a node still belongs to the companion; True if Slurm does not answer."""
        try:
            found = await entries(self._slurm, f"--jobs={self.job}")
        except SlurmFailed:
            return True
        held = [each.names for each in found if each.holds]
        return node in [name for names in held for name in await self._slurm.hostnames(names)]

    async def end(self) -> None:
        """Give the nodes back, and wait until Slurm has them; works in every state."""
        self._withdrawn = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        # a salloc that is still queued does not read its pipe
        if not await self._ends(POLITE if self.nodes else 0):
            await self._force()
        await self._until_given_back()
        await self._settle()

    async def _settle(self) -> None:
        """End our own tasks: the outcome of the request no longer matters."""
        self.granted.cancel()
        await asyncio.wait({self.granted, self._listener})
        if not self.granted.cancelled():
            self.granted.exception()

    def _loss(self, job: int | None) -> asyncio.Event:
        """The event that is set when the job, or a component of it, is over."""
        event = self._losses.setdefault(job, asyncio.Event())
        if self._over:
            event.set()
        return event

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.readline():
            line = data.decode(errors="replace").strip()
            self._said.append(line)
            if found := NUMBERED.search(line):
                self.job = int(found[1])
                self._numbered.set()
            if found := REVOKED.search(line):
                self._loss(int(found[1])).set()
        self._numbered.set()
        self._over = True
        for event in self._losses.values():
            event.set()

    async def _grant(self) -> bool:
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode(errors="replace").split()
        if len(line) >= 2:
            self.job, self.nodes = int(line[0]), line[1].rstrip(",").split(",")
            self.qpu_job = int(line[2]) if len(line) == 3 else None
            return True
        await self._process.wait()
        await self._listener
        if self._withdrawn:
            return False
        why = reason("\n".join(self._said))
        raise (ControllerAway if any(each in why for each in ABSENT) else SlurmRefused)(
            f"Slurm refused the {self._sought}: {why}"
        )

    async def _force(self) -> None:
        """Cancel the job, whatever salloc does, and kill salloc if it does not end."""
        await self._until_numbered()
        await self._cancel(self.job)
        await self._until_given_back()
        if not await self._ends(GRACE if self.job else POLITE):
            self._process.kill()
            await self._process.wait()

    async def _ends(self, limit: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._process.wait()
        return self._process.returncode is not None

    async def _until_numbered(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLITE):
                await self._numbered.wait()

    async def _cancel(self, job: int | None, *terms: str) -> None:
        """Cancel a job; that it has just ended by itself is no error."""
        if job is not None:
            with suppress(SlurmFailed):
                await self._slurm.output("scancel", *terms, str(job))

    async def _until_given_back(self) -> None:
        """Wait until Slurm has all nodes; for those that do not respond, not as long."""
        for limit, spared in ((POLITE, set[str]()), (END_LIMIT, self.silent)):
            if await self._given_back(limit, spared, self.job):
                return

    async def _given_back(self, limit: float, spared: set[str], job: int | None) -> bool:
        pause = POLL_FIRST
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while await self._holds(spared, job):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, POLL_MOST)
                return True
        return False

    async def _holds(self, spared: set[str], job: int | None) -> bool:
        """True while the controller is down: it may not have received our request either."""
        if job is None:
            return False
        try:
            found = await entries(self._slurm, f"--jobs={job}")
        except SlurmFailed:
            return True
        if any(each.state in ("RUNNING", "PENDING") for each in found):
            await self._cancel(job)
            return True
        held = [each.names for each in found if each.holds]
        if not spared:
            return bool(held)
        names = [name for names in held for name in await self._slurm.hostnames(names)]
        return not spared.issuperset(names)
