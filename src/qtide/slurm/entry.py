"""The driver's way into the vQPU service: by a slot that one of its own jobs holds.

Munge proves who asks, as in the prolog of a job. So the token need not be handed on by anybody: it
is in the driver's memory alone, and ends with the job.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from qtide.client.access import AUTHORITY, here
from qtide.slurm.commands import Slurm
from qtide.slurm.prolog.prolog import AskedInVain, ProofFailed, Settings, admitted

SOCKET = re.compile(r"^\s*AuthInfo\s*=.*?\bsocket=([^\s,]+)", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """The token of a job, or why there is none."""

    token: str | None = None
    refusal: str | None = None


def enter(url: str, job: int, slurm: Slurm) -> Entry:
    """Ask the service for the token of a running job of ours that holds a slot."""
    known, munge = here(url), munge_socket_of(slurm)
    settings = Settings(
        url,
        ca=os.environ.get(AUTHORITY, ""),
        munge_socket=str(munge or ""),
        socket=str(known.socket) if known else "",
    )
    try:
        return Entry(token=admitted(settings, job)["QTIDE_TOKEN"])
    except (OSError, ValueError, AskedInVain, ProofFailed, HTTPException) as error:
        return Entry(refusal=f"job {job} got no token: {error}")


def munge_socket_of(slurm: Slurm) -> Path | None:
    """The socket of the munged that Slurm itself uses; None if it uses munge's default."""
    conf = slurm.environment.get("SLURM_CONF")
    found = SOCKET.search(Path(conf).read_text()) if conf else None
    return Path(found[1]) if found else None
