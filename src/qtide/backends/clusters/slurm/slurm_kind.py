"""`--cluster slurm`: its options, and Slurm's data on queues, accounts and drivers."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from qtide.backends.clusters.cluster import Cluster, KindsCluster
from qtide.backends.clusters.kind import ClusterKind, Queue, Setting, StepJobs
from qtide.backends.clusters.slurm.accounting import accounts, when_ended
from qtide.backends.clusters.slurm.commands import (
    Slurm,
    SlurmFailed,
    clients,
    environment,
    reason,
)
from qtide.backends.clusters.slurm.companion import ADMISSION, CompanionOptions
from qtide.backends.clusters.slurm.mark import Driver, reap
from qtide.backends.clusters.slurm.queue import entries, partition_kind
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.errors import QtideError, UsageError
from qtide.core.job import JobContext
from qtide.core.metrics import Metrics
from qtide.core.options import Option
from qtide.core.resources import WEIGHTS, BillingWeights, Needs
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World

LIMIT = 60.0
"""Seconds within which sbatch must answer."""
QUEUE_LIMIT = 5.0
"""Seconds within which squeue must answer when a program asks who waits."""
KIND_TERMS = {"partition", "constraint", "account", "qos", "time_limit"}
"""What may distinguish the companions of one kind of nodes."""
START = re.compile(r"to start at (\d+)")
"""Matches the output of sbatch --test-only; times are in seconds since 1970."""


@dataclass(frozen=True)
class SlurmOptions:
    """User options in Slurm's notation; None means the site's default."""

    account: Annotated[str | None, Option("The account that pays.")] = None
    qos: Annotated[str | None, Option("The quality of service.")] = None
    constraint: Annotated[str | None, Option("Features that nodes must have.")] = None
    time_limit: Annotated[
        str, Option("How long nodes are held at a time, in the form of sbatch's --time.")
    ] = "60"
    salloc: Annotated[
        list[str], Option("One more option of salloc, as --salloc=--reservation=R.")
    ] = field(default_factory=list)
    share_nodes: Annotated[
        str,
        Option(
            "Ask for such parts of nodes, which other jobs may share, in place of whole nodes.",
            None,
            "cores=4,gpus=1",
        ),
    ] = ""
    kind: Annotated[
        list[str],
        Option(
            "A kind of nodes, by its partition and features; repeat it for several kinds. The "
            "first is what a task gets that names none.",
            None,
            "NAME:partition=P,constraint=F",
        ),
    ] = field(default_factory=list)
    billing: Annotated[
        str,
        Option(
            f"What the site charges for each second, as {WEIGHTS}.  [default: the partition's "
            "TRESBillingWeights]",
            None,
            "WEIGHTS",
        ),
    ] = ""
    qpu_by: Annotated[
        str, Option("What a lease of the QPU is to Slurm: gres, licence, or none.", None, "WHAT")
    ] = "none"
    qpu_partition: Annotated[str, Option("The partition of jobs that hold a lease.")] = "quantum"


class SlurmKind(ClusterKind):
    """A stock Slurm: the site's own, or the one that SLURM_CONF names."""

    summary = "a Slurm cluster, as slurm or slurm:PARTITION"
    starts_commands = True
    Options = SlurmOptions

    def check(self, setting: Setting) -> None:
        """Reject invalid options; the number of nodes is checked later, as only Slurm knows it."""
        options = setting.options(SlurmOptions)
        for name, value in {"cluster": setting.argument, **asdict(options)}.items():
            for text in value if isinstance(value, list) else [value]:
                # a newline would start a new line in a batch script
                if text is not None and not text.isprintable():
                    option = name.replace("_", "-")
                    raise UsageError(f"--{option} has characters that cannot be printed: {text!r}")
        if options.kind and setting.argument:
            raise UsageError("--kind names the partitions: use --cluster slurm")
        _kinds(options.kind, CompanionOptions())
        BillingWeights.parse(options.billing)
        if options.share_nodes and Needs.parse(options.share_nodes).whole:
            raise UsageError("--share-nodes says how much of a node to ask for, as in cores=4")
        admission = options.qpu_by
        if admission not in ("none", *ADMISSION):
            raise UsageError(f"--qpu-by is none, {', '.join(ADMISSION)}; not {admission!r}")
        if setting.nodes is not None and setting.nodes < 1:
            raise UsageError(f"--nodes has to be at least 1, not {setting.nodes}")

    async def open(self, world: World, setting: Setting) -> Cluster:
        """Connect without starting a job; cancel jobs that dead drivers left behind."""
        assert isinstance(world, RealWorld)
        kinds = _kinds(setting.options(SlurmOptions).kind, companion_options(setting))
        if kinds:
            return KindsCluster(
                [await SlurmCluster.connect(world, each, name=name) for name, each in kinds.items()]
            )
        return await SlurmCluster.connect(world, companion_options(setting))

    def size(self, setting: Setting) -> int | None:
        """The usable nodes of the partition, or of the kind with the most; None if unknown."""
        usual = companion_options(setting)
        kinds = _kinds(setting.options(SlurmOptions).kind, usual).values() or [usual]
        slurm = Slurm()
        try:
            found = [RealWorld().run(partition_kind(slurm, each.partition)) for each in kinds]
        except QtideError:
            return None
        if usual.part is not None:
            found = [each.divided(usual.part) for each in found if each.share(usual.part) <= 1]
        return max((each.count for each in found), default=0) or None

    def queue(self, setting: Setting, nodes: int) -> Queue | None:
        """Slurm's own estimate of the wait; raise QtideError if Slurm is not available."""
        return RealWorld().run(queue_now(Slurm(), companion_options(setting), nodes))

    @staticmethod
    def accounts(
        job: JobContext, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
    ) -> dict[str, Any]:
        """Usage charged by Slurm; raise QtideError if Slurm is not available."""
        found = asyncio.run(accounts(job, metrics, scale, since, ended))
        return {name: each.as_dict() for name, each in found.items()}

    @staticmethod
    def ends(jobs: Collection[int], since: float) -> dict[int, float]:
        """End times from Slurm's records; raise QtideError if Slurm is not available."""
        return asyncio.run(when_ended(jobs, since))

    @staticmethod
    def others_waiting() -> int:
        """Number of pending jobs in squeue, without this process's companions; 0 on failure."""
        mine = Driver.own().comment()
        try:
            waiting = asyncio.run(entries(Slurm(), "--states=PENDING", limit=QUEUE_LIMIT))
        except SlurmFailed:
            return 0
        return sum(each.comment != mine for each in waiting)

    @staticmethod
    def own_job() -> str | None:
        """The job id that Slurm sets in the environment of its jobs."""
        return os.environ.get("SLURM_JOB_ID")

    @staticmethod
    def driver_state(job: str) -> str | None:
        """The job's state in squeue; None if unknown."""
        try:
            found = asyncio.run(entries(Slurm(), f"--jobs={job}", "--states=all"))
        except QtideError:
            return None
        return found[0].state if found else None

    @staticmethod
    def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
        """Start a driver as a small batch job that does not need a whole node."""
        script = f"#!/bin/sh\nexec {shlex.join(command)}\n"
        output = str(log.absolute()).replace("%", "%%")
        words = ["sbatch", "--parsable", "--ntasks=1", f"--job-name=qtide-driver-{name}"]
        words += [f"--output={output}", f"--chdir={Path.cwd()}", *extra]
        conf = os.environ.get("SLURM_CONF")
        env = os.environ | (clients(Path(conf)) if conf else {})
        try:
            done = subprocess.run(
                words,
                input=script,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=True,
                env=env,
            )
        except FileNotFoundError:
            raise UsageError("there is no sbatch here; --driver background needs none") from None
        except subprocess.CalledProcessError as error:
            why = error.stderr.strip()
            raise QtideError(f"sbatch refused the driver of {name}: {why}") from None
        except subprocess.TimeoutExpired:
            raise QtideError(f"sbatch gave no answer within {LIMIT:g} s") from None
        return f"job {int(done.stdout.strip().partition(';')[0])}"

    def step_jobs(self, setting: Setting, comment: str) -> StepJobs:
        """Submit steps with the same options as companions."""
        options = companion_options(setting)
        quantum = None if options.qpu_by is None else options.qpu("qtide-step", comment)
        classical = options.salloc("qtide-step", comment, "1")[1:]
        return StepJobs("slurm", "#SBATCH", classical, quantum, environment())

    @staticmethod
    async def cancel_steps(comment: str) -> list[str]:
        """Cancel jobs with this comment; if Slurm is not available, their time limit ends them."""
        jobs: list[str] = []
        with suppress(SlurmFailed):
            rows = await Slurm().output("squeue", "--me", "--noheader", "--format=%i %k")
            found = (row.partition(" ") for row in rows.splitlines())
            jobs = [job for job, _, about in found if about == comment]
            if jobs:
                await Slurm().output("scancel", *jobs)
        return jobs

    @staticmethod
    def step_node() -> str | None:
        """The node name that slurmd sets for its tasks."""
        return os.environ.get("SLURMD_NODENAME")

    @staticmethod
    def reap() -> list[int]:
        """Cancel companions whose driver on this machine is dead."""
        return asyncio.run(reap(Slurm()))


def companion_options(setting: Setting) -> CompanionOptions:
    """Convert a cluster setting to companion options."""
    given = setting.options(SlurmOptions)
    return CompanionOptions(
        partition=setting.argument or None,
        account=given.account,
        qos=given.qos,
        constraint=given.constraint,
        time_limit=given.time_limit,
        part=Needs.parse(given.share_nodes) if given.share_nodes else None,
        weights=BillingWeights.parse(given.billing) if given.billing else None,
        extra=tuple(given.salloc),
        qpu_by=None if given.qpu_by == "none" else given.qpu_by,
        qpu_partition=given.qpu_partition,
    )


def _kinds(words: Sequence[str], usual: CompanionOptions) -> dict[str, CompanionOptions]:
    """Read the options of companions for each kind of nodes that the user names."""
    found: dict[str, CompanionOptions] = {}
    for word in words:
        name, _, rest = word.partition(":")
        pairs = (entry.partition("=")[::2] for entry in rest.split(",") if entry)
        terms: dict[str, Any] = dict(pairs)
        if not name.isidentifier() or name in found or not terms.keys() <= KIND_TERMS:
            raise UsageError(
                f"a kind of Slurm's nodes is said once, as in gpu:partition=boost,constraint=a100, "
                f"not {word!r}"
            )
        found[name] = replace(usual, **terms)
    return found


async def queue_now(slurm: Slurm, options: CompanionOptions, nodes: int) -> Queue:
    """Ask Slurm when a companion with `nodes` nodes would start, without submitting it."""
    slurm.check()
    words = options.salloc("qtide", "qtide", str(nodes))[1:]
    _, out, err = await slurm.run("sbatch", "--test-only", *words, "--wrap=true")
    found = START.search(out + err)
    if found is None:
        raise SlurmFailed(f"sbatch does not say when a job would start: {reason(out + err)}")
    where = [f"--partition={options.partition}"] if options.partition else []
    waiting = len(await entries(slurm, "--states=PENDING", *where))
    wait = max(0.0, float(found[1]) - time.time())
    jobs = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
    return Queue(wait, f"Slurm would grant {nodes} nodes in {wait:.0f} s ({jobs})")
