"""A run's account: what it held by its own ledger, and what Slurm charges for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from qtide.jobs.job import Job
from qtide.ledger.metrics import Metrics
from qtide.slurm.accounting import Usage, qpu_usage, usage
from qtide.slurm.commands import Slurm, SlurmFailed

LIMIT = 10.0
"""Seconds within which Slurm has to answer."""


@dataclass(frozen=True)
class Account:
    """Seconds of nodes, or of QPUs, by the real clock, as counted by the ledger and by Slurm."""

    held: float
    charged: Usage

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "held": self.held,
            "charged": self.charged.node_seconds,
            "difference": self.charged.node_seconds - self.held,
            "jobs": self.charged.companions,
            "source": self.charged.source,
        }


async def accounts(job: Job, metrics: Metrics, scale: float, since: float) -> dict[str, Account]:
    """The account of a job's nodes and, if Slurm granted its leases, of the QPU.

    Raises SlurmFailed if Slurm does not answer.
    """
    slurm = Slurm()
    slurm.check()
    try:
        async with asyncio.timeout(LIMIT):
            nodes = await usage(slurm, job, since)
            leases = await qpu_usage(slurm, job, since)
    except TimeoutError:
        raise SlurmFailed(f"Slurm gave no answer within {LIMIT:g} s") from None
    found = {"nodes": Account(metrics.nodes_held * scale, nodes)}
    if leases.companions:
        found["qpu"] = Account(metrics.slots_held * scale, leases)
    return found
