"""Whether Slurm checks which accounts a user may name; otherwise `--account=` is free text."""

from __future__ import annotations

import re

from qtide.slurm.commands import LIMIT, Slurm

ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=\s*(\S+)", re.MULTILINE)
IMPLYING = {"associations", "limits", "qos", "safe", "all", "1", "2"}
"""Settings with which a job of an account that is not the user's is refused."""


async def accounts_are_checked(slurm: Slurm, limit: float = LIMIT) -> bool:
    """Whether a job's account is one of its user's."""
    found = ENFORCED.search(await slurm.output("scontrol", "show", "config", limit=limit))
    return found is not None and bool(IMPLYING & set(found[1].lower().split(",")))
