"""A run's account: what it held by its own ledger, and what Slurm charges for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from qtide.jobs.job import Job
from qtide.ledger.metrics import Metrics
from qtide.slurm import accounting
from qtide.slurm.accounting import Usage, qpu_usage, usage
from qtide.slurm.commands import Slurm, SlurmFailed

T = TypeVar("T")

LIMIT = 10.0
"""Seconds within which Slurm has to answer."""
PATIENCE, PAUSE = 2.0, 0.25
"""Seconds that are waited for records of jobs that have just ended, and between two looks."""


@dataclass(frozen=True)
class Account:
    """Seconds of nodes, or of QPUs, by the real clock, as counted by the ledger and by Slurm."""

    held: float
    charged: Usage
    missing: int = 0
    """How many jobs have ended, but their ends are not in Slurm's records yet."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "held": self.held,
            "charged": self.charged.node_seconds,
            "difference": self.charged.node_seconds - self.held,
            "jobs": self.charged.companions,
            "missing": self.missing,
            "source": self.charged.source,
        }


async def accounts(
    job: Job, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
) -> dict[str, Account]:
    """The account of a job's nodes and, if Slurm granted its leases, of the QPU.

    Waits a moment for the records of jobs that are known to have ended. Raises SlurmFailed if
    Slurm does not answer.
    """
    nodes, leases = await _answered(_complete(_slurm(), job, since, ended))
    missing = set(ended) - nodes.ended - leases.ended
    found = {"nodes": Account(metrics.nodes_held * scale, nodes, len(missing))}
    if leases.companions:
        found["qpu"] = Account(metrics.slots_held * scale, leases, len(missing))
    return found


async def ends(jobs: Collection[int], since: float) -> dict[int, float]:
    """When jobs ended; raises SlurmFailed if Slurm does not answer."""
    return await _answered(accounting.ends(_slurm(), jobs, since))


async def _complete(
    slurm: Slurm, job: Job, since: float, ended: Collection[int]
) -> tuple[Usage, Usage]:
    """What Slurm's records have, once they are complete, or patience is over."""
    last = time.monotonic() + PATIENCE
    while True:
        nodes, leases = await usage(slurm, job, since), await qpu_usage(slurm, job, since)
        if not set(ended) - nodes.ended - leases.ended or time.monotonic() > last:
            return nodes, leases
        await asyncio.sleep(PAUSE)


def _slurm() -> Slurm:
    slurm = Slurm()
    slurm.check()
    return slurm


async def _answered(question: Coroutine[Any, Any, T]) -> T:
    try:
        return await asyncio.wait_for(question, LIMIT)
    except TimeoutError:
        raise SlurmFailed(f"Slurm gave no answer within {LIMIT:g} s") from None
