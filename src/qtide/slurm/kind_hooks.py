"""What Slurm can do for a run beside giving it nodes: charge, look after drivers, clean up."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from pathlib import Path
from typing import Any

from qtide.errors import QtideError, UsageError
from qtide.jobs.job import Job
from qtide.ledger.metrics import Metrics
from qtide.slurm import account, reaper
from qtide.slurm.commands import Slurm
from qtide.slurm.queue import entries

LIMIT = 60.0
"""Seconds that sbatch has to answer in."""


def accounts(job: Job, metrics: Metrics, scale: float, since: float) -> dict[str, Any]:
    """What Slurm charges for a job beside what it held; raises QtideError if it cannot be asked."""
    found = asyncio.run(account.accounts(job, metrics, scale, since))
    return {name: each.as_dict() for name, each in found.items()}


def driver_state(job: str) -> str | None:
    """How Slurm sees a driver that is a job of its own; None if it cannot be told."""
    try:
        found = asyncio.run(entries(Slurm(), f"--jobs={job}", "--states=all"))
    except QtideError:
        return None
    return found[0].state if found else None


def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
    """Start a driver as a small batch job, which needs no node to itself; where it is, in words."""
    script = f"#!/bin/sh\nexec {shlex.join(command)}\n"
    words = ["sbatch", "--parsable", "--ntasks=1", f"--job-name=qtide-driver-{name}"]
    words += [f"--output={str(log.absolute()).replace('%', '%%')}", f"--chdir={Path.cwd()}", *extra]
    try:
        done = subprocess.run(
            words, input=script, capture_output=True, text=True, timeout=LIMIT, check=True
        )
    except FileNotFoundError:
        raise UsageError("there is no sbatch here; --driver background needs none") from None
    except subprocess.CalledProcessError as error:
        raise QtideError(f"sbatch refused the driver of {name}: {error.stderr.strip()}") from None
    except subprocess.TimeoutExpired:
        raise QtideError(f"sbatch gave no answer within {LIMIT:g} s") from None
    return f"job {int(done.stdout.strip().partition(';')[0])}"


def reap() -> list[int]:
    """Cancel jobs of this user whose driver on this machine is dead; which they were."""
    return asyncio.run(reaper.reap(Slurm()))
