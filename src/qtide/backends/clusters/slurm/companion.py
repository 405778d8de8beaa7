"""A companion: a Slurm job that only holds nodes, for as long as its driver keeps a pipe open.

salloc runs a `cat` that reads from the driver. As soon as the driver closes the pipe or dies, `cat`
ends and Slurm takes the nodes back. The command prints the names of its nodes, so that no query is
needed.

A heterogeneous companion holds nodes and a QPU, granted together. If the QPU's component is
cancelled, salloc considers the whole job over: it sends its command a SIGHUP and later releases
nothing. So the command ignores the signal, and cancels the job itself when the driver's end of the
pipe is closed. It also kills salloc, which might otherwise wait forever if its command and its job
end at the same moment.

`Requests` waits in Slurm's queue, `Companion` is one salloc, and `CompanionOptions` builds the
command lines.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from qtide.backends.clusters.link import SILENCE, preparation_terms, supervisor_terms
from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed, reason
from qtide.backends.clusters.slurm.queue import entries
from qtide.core.errors import NotEnoughNodes
from qtide.core.forecasts import Wait
from qtide.core.job import JobContext, Preparation
from qtide.core.resources import BillingWeights, Needs
from qtide.core.world.real import RealWorld

ADMISSION = {"gres": "--gres=qpu:1", "licence": "--licenses=qpu:1"}
"""How a job asks Slurm for one virtual QPU."""

AGENT = "from qtide.backends.clusters.agent import main; main()"
"""Same as `-m qtide.backends.clusters.agent`, but a few milliseconds faster."""


@dataclass(frozen=True)
class CompanionOptions:
    """User options for companions, in Slurm's notation; None means the site's default."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_limit: str = "60"
    """Minutes, or any format that --time accepts. A companion that reaches it is replaced."""
    queue_limit: float = 86400.0
    """Seconds after which a request that is still queued is abandoned."""
    whole_nodes: bool = True
    """Whether to request exclusive nodes with all of their memory."""
    gpus: int = 0
    """GPUs that each node has and a companion asks for."""
    part: Needs | None = None
    """What to request of each node, where jobs share nodes; None for whole nodes."""
    weights: BillingWeights | None = None
    """What the site charges; None for what the partition says."""
    extra: Sequence[str] = ()
    """Additional options for salloc, such as --reservation=NAME."""
    qpu_by: str | None = None
    """How Slurm grants QPU leases: `gres` or `licence`; None if it does not."""
    qpu_partition: str = "quantum"
    """The partition of jobs that hold a QPU."""
    silence: float = SILENCE
    """Seconds without a heartbeat after which a node counts as lost."""
    python: str = sys.executable
    """The interpreter that runs agents; its path must be valid on the nodes."""

    def salloc(self, name: str, comment: str, nodes: str) -> list[str]:
        """The command that requests a companion; `nodes` is a number or a range."""
        return [
            "salloc",
            f"--nodes={nodes}",
            *self._common(name, comment),
            "--no-kill",  # one failed node must not end the others
            *self._amount(),
            *_given(partition=self.partition, constraint=self.constraint),
            *self.extra,
        ]

    def qpu(self, name: str, comment: str) -> list[str]:
        """The salloc options for a job that holds a QPU."""
        assert self.qpu_by is not None
        words = [f"--partition={self.qpu_partition}", "--ntasks=1", ADMISSION[self.qpu_by]]
        return [*words, *self._common(name, comment)]

    def with_qpu(self, nodes: list[str], qpu: list[str]) -> list[str]:
        """The command that requests nodes and a QPU in one heterogeneous job.

        From 23.11 on, only the first component of such a job may ask for licences.
        """
        if self.qpu_by != "licence":
            return [*nodes, ":", *qpu]
        licence = ADMISSION["licence"]
        return [*nodes, licence, ":", *(word for word in qpu if word != licence)]

    def srun(
        self, job: int, node: str, preparation: Preparation, *, het: bool = False
    ) -> list[str]:
        """The command that runs an agent on a companion's node, with all the node's resources."""
        # a node that loses its driver cancels its own companion, long before the time limit
        supervisor = supervisor_terms(self.silence, ["scancel", str(job)])
        terms = {"supervisor": supervisor, "preparation": preparation_terms(preparation)}
        return self.step(job, node, [self.python, "-c", AGENT, json.dumps(terms)], het=het)

    def step(self, job: int, node: str, command: list[str], *, het: bool = False) -> list[str]:
        """The srun command that runs `command` on a companion's node, with all its resources."""
        return [
            "srun",
            f"--jobid={job}",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={node}",
            *(["--het-group=0"] if het else []),  # not implied with --nodelist
            "--mpi=none",
            "--cpu-bind=none",
            "--unbuffered",
            *command,
        ]

    def _amount(self) -> list[str]:
        """What to request of each node."""
        gpus = self.gpus if self.part is None else self.part.gpus
        words = [f"--gres=gpu:{gpus}"] if gpus else []
        if self.part is not None:
            memory = self.part.memory
            words += ["--ntasks-per-node=1", f"--cpus-per-task={self.part.cores or 1}"]
            return [*words, *([] if memory is None else [f"--mem={memory // 2**20}M"])]
        return [*(["--exclusive", "--mem=0"] if self.whole_nodes else []), *words]

    def _common(self, name: str, comment: str) -> list[str]:
        own = [f"--job-name={name}", f"--comment={comment}", f"--time={self.time_limit}"]
        return [*own, *_given(account=self.account, qos=self.qos)]


def _given(**words: str | None) -> list[str]:
    return [f"--{key}={value}" for key, value in words.items() if value is not None]


class SlurmRefused(SlurmFailed, NotEnoughNodes):
    """Slurm refuses the request: no nodes will come."""


class ControllerAway(SlurmRefused):
    """Slurm's controller is temporarily down."""


AWAY_LIMIT, AWAY_PAUSE = 300.0, 0.5
"""Seconds that Slurm's controller may be down, and seconds between two tries."""
LOOK_FIRST, LOOK_MOST = 1.0, 30.0
"""First and longest interval, in seconds, between two looks at the queue while waiting."""


class QueuedTooLong(NotEnoughNodes):
    """A request waited in Slurm's queue for longer than the user allows."""

    exit_code = 1


@dataclass(eq=False)
class Place:
    """A request in Slurm's queue: its job, its wait, what it seeks and why it waits."""

    job: JobContext
    wait: Wait
    sought: str = "nodes"
    reason: str = "not known"


class Requests:
    """Requests companions from one Slurm, within the wait that the user allows."""

    def __init__(self, world: RealWorld, slurm: Slurm, limit: float) -> None:
        self.world = world
        self._slurm = slurm
        self._limit = limit

    async def granted(self, place: Place, words: list[str]) -> Companion:
        """Submit a companion and wait for it as long as the user allows."""
        companion = await self.granted_within(self._limit, place, words)
        if companion is None:
            raise QueuedTooLong(
                f"{place.job.name} waited in Slurm's queue for {self._limit:g} s ({place.reason}) "
                "and gave up; finished phases are kept, resume it later"
            )
        return companion

    async def granted_within(
        self, limit: float, place: Place, words: list[str]
    ) -> Companion | None:
        """Wait up to `limit` seconds for a companion, else None; wait out controller outages."""
        last = asyncio.get_running_loop().time() + AWAY_LIMIT
        while True:
            try:
                return await self._submitted(limit, place, words)
            except ControllerAway:
                if asyncio.get_running_loop().time() > last:
                    raise
                await asyncio.sleep(AWAY_PAUSE)

    async def _submitted(self, limit: float, place: Place, words: list[str]) -> Companion | None:
        companion = await Companion.submit(self._slurm, words, place.sought)
        look = asyncio.create_task(self._follow(place, companion))
        try:
            await asyncio.wait({companion.granted}, timeout=limit)
            granted = companion.granted.done() or await companion.withdraw()
            if granted and companion.granted.result():
                return companion
        except BaseException:
            await self.world.settled([self.world.start(companion.end())])
            raise
        finally:
            look.cancel()
        await companion.end()
        return None

    async def _follow(self, place: Place, companion: Companion) -> None:
        """Record when Slurm expects to start the companion, and why it waits."""
        pause = LOOK_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_MOST)
            if companion.job is None:
                continue
            with suppress(SlurmFailed):
                for entry in await entries(self._slurm, f"--jobs={companion.job}"):
                    place.reason = entry.reason
                    start = (entry.start or 0.0) / self.world.scale
                    place.wait.announced = start - place.wait.since


NAMES = (
    'names() { case "$1" in *\\[*) scontrol show hostnames "$1" | tr "\\n" , ;; '
    '*) echo "$1" ;; esac; }; '
)
"""Expands a node list with scontrol; a single name avoids that command, which takes 10 ms."""
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
"""Seconds within which Slurm must take nodes back; its own KillWait defaults to 30."""
END_GRACE = 5.0
"""Seconds that salloc may take to end on its own."""
OVER_GRACE = 0.5
"""Seconds that salloc may take to end once its job is over."""
CONTROLLER_AWAY = (
    "contact slurm controller",
    "Socket timed out",
    "backup controller",
    "Zero Bytes",
)
"""Messages of Slurm's commands while its controller is down, as during a restart."""


class Companion:
    """One salloc, from its request to its end."""

    def __init__(
        self, slurm: Slurm, process: asyncio.subprocess.Process, sought: str = "nodes"
    ) -> None:
        self._slurm = slurm
        self._sought = sought
        self._process = process
        self._messages: list[str] = []
        self._numbered = asyncio.Event()
        self._withdrawn = False
        self._over = False
        self._losses: dict[int | None, asyncio.Event] = {}
        self.job: int | None = None
        self.qpu_job: int | None = None
        """The component that holds a QPU, if the job is heterogeneous."""
        self._licensed = False
        """Whether the first component of a heterogeneous job holds the QPU's licence."""
        self.nodes: list[str] = []
        self.on_return: Callable[[set[str], float], None] = lambda *_: None
        """Called with the nodes returned to Slurm, and how many seconds ago that was."""
        self._ended: float | None = None
        """Monotonic time at which the job was first seen to be over."""
        self.silent: set[str] = set()
        """Nodes that do not respond; Slurm may take long to get them back."""
        self._listener = asyncio.create_task(self._listen())
        self.granted: asyncio.Task[bool] = asyncio.create_task(self._grant())
        """Resolves to True when granted, False when withdrawn; raises if Slurm refuses."""

    @staticmethod
    async def submit(slurm: Slurm, words: list[str], sought: str = "nodes") -> Companion:
        """Submit a request; a colon among the words separates two components."""
        hold = HOLD_BOTH if ":" in words else HOLD
        process = await slurm.start(*words, *hold, stdin=asyncio.subprocess.PIPE)
        companion = Companion(slurm, process, sought)
        companion._licensed = ":" in words and ADMISSION["licence"] in words
        return companion

    @property
    def lease_job(self) -> int | None:
        """The job, or job component, that holds a QPU."""
        return self.qpu_job or self.job

    async def gone(self) -> str:
        """Wait until the companion has ended on its own; return the reason."""
        await self._loss(self.job).wait()
        return (
            self._messages[-1].removeprefix("salloc: ") if self._messages else "it gave no reason"
        )

    async def qpu_gone(self) -> None:
        """Wait until the component that holds a QPU, or the whole job, has ended."""
        await self._loss(self.lease_job).wait()

    async def end_qpu(self) -> None:
        """Release the QPU and wait until Slurm has it back; nodes granted with it stay."""
        if self.qpu_job is None:
            await self.end()
            return
        if self._licensed and not self._over:
            with suppress(SlurmFailed):  # the job is over, and its licence with it
                await self._slurm.output("scontrol", "update", f"jobid={self.job}", "licenses=")
        if not self._loss(self.qpu_job).is_set():
            await self._cancel(self.qpu_job)
        await self._given_back(END_LIMIT, set(), self.qpu_job)

    async def withdraw(self) -> bool:
        """Leave the queue; True if the nodes were granted in the meantime."""
        self._withdrawn = True
        await self._until_numbered()
        await self._cancel(self.job, "--state=PENDING")
        await asyncio.wait({self.granted}, timeout=END_GRACE)
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
        """Release the nodes and wait until Slurm has them back; works in every state."""
        self._withdrawn = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        # a queued salloc does not read its pipe
        if not await self._ends(END_GRACE if self.nodes else 0):
            await self._force()
        await self._until_given_back()
        self.granted.cancel()  # the outcome of the request no longer matters
        await asyncio.wait({self.granted, self._listener})
        if not self.granted.cancelled():
            self.granted.exception()

    def _loss(self, job: int | None) -> asyncio.Event:
        """The event that is set when the job, or a job component, is over."""
        event = self._losses.setdefault(job, asyncio.Event())
        if self._over:
            event.set()
        return event

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.readline():
            line = data.decode(errors="replace").strip()
            self._messages.append(line)
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
        why = reason("\n".join(self._messages))
        raise (ControllerAway if any(each in why for each in CONTROLLER_AWAY) else SlurmRefused)(
            f"Slurm refused the {self._sought}: {why}"
        )

    async def _force(self) -> None:
        """Cancel the job regardless of salloc, and kill salloc if it does not end."""
        await self._until_numbered()
        await self._cancel(self.job)
        await self._until_given_back()
        if not await self._ends(OVER_GRACE if self.job else END_GRACE):
            self._process.kill()
            await self._process.wait()

    async def _ends(self, limit: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._process.wait()
        return self._process.returncode is not None

    async def _until_numbered(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE):
                await self._numbered.wait()

    async def _cancel(self, job: int | None, *terms: str) -> None:
        """Cancel a job; it is no error if the job has just ended on its own."""
        if job is not None:
            with suppress(SlurmFailed):
                await self._slurm.output("scancel", *terms, str(job))

    async def _until_given_back(self) -> None:
        """Wait until Slurm has all nodes back; wait less for nodes that do not respond."""
        for limit, spared in ((END_GRACE, set[str]()), (END_LIMIT, self.silent)):
            if await self._given_back(limit, spared, self.job):
                return
            if self._ended is not None:
                # nodes still completing do not respond: count them as held until the job's end
                self.on_return({*self.nodes}, time.monotonic() - self._ended)

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
        """Whether the job holds nodes other than `spared`.

        True while the controller is down, as it may not have received our request either.
        """
        if job is None:
            return False
        held: set[str] = set()
        try:
            found = await entries(self._slurm, f"--jobs={job}")
            if any(each.state in ("RUNNING", "PENDING") for each in found):
                await self._cancel(job)
                return True
            for each in found:
                held.update(await self._slurm.hostnames(each.names) if each.holds else ())
        except SlurmFailed:
            return True
        if job == self.job:
            self._ended = self._ended or time.monotonic()
            self.on_return({*self.nodes} - held, 0.0)
        return not held <= spared
