"""Drivers as jobs of Slurm: started by sbatch, and looked for in the queue."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from pathlib import Path

from qtide.errors import QtideError, UsageError
from qtide.slurm.commands import Slurm
from qtide.slurm.queue import entries

LIMIT = 60.0
"""Seconds that sbatch has to answer in."""


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
