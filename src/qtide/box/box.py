"""A box: a real Slurm cluster on this machine, below one folder, put up and taken down at once."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qtide.box.daemons import give_tokens, node_states, prepare, start
from qtide.box.layout import Layout, Plan
from qtide.box.packages import require
from qtide.box.processes import daemons, end, offspring
from qtide.errors import QtideError, UsageError
from qtide.system.files import Locked, lock
from qtide.system.paths import state_folder
from qtide.system.ports import free_ports

END_LIMIT = 10.0
"""Seconds in which killed processes have to be gone."""

SLURMD_TIMEOUT = 60
"""Seconds after which a node that does not answer counts as down."""


@dataclass(frozen=True)
class Status:
    """What there is of a box."""

    folder: Path
    plan: Plan
    daemons: dict[str, int]
    """How many run of each."""
    nodes: dict[str, str]
    """The state of each node, as Slurm says it; empty if Slurm does not answer."""

    @property
    def up(self) -> bool:
        """Whether every daemon runs and Slurm answers."""
        return self.daemons == _wanted(self.plan) and len(self.nodes) == len(self.plan.node_names)


def up(
    folder: Path,
    nodes: int = 3,
    qpus: int = 1,
    accounting: bool = False,
    *,
    service: str | None = None,
    slurmd_timeout: int = SLURMD_TIMEOUT,
) -> Status:
    """Put up a box; one that is up already stays, what is left of a dead one is removed.

    Its jobs get tokens of the vQPU service at the URL `service`, also if it was up already.
    """
    if nodes < 1 or qpus < 1:
        raise UsageError(f"a box has at least one node and one QPU, not {nodes} and {qpus}")
    require(accounting=accounting)
    plan = Plan(nodes, qpus, accounting, slurmd_timeout)
    layout = Layout(folder)
    layout.check()
    with _alone(layout):
        there = _standing(layout, plan) or _put_up(layout, plan)
        if service is not None:
            give_tokens(layout, service)
        return there


def down(folder: Path) -> None:
    """End every process of the box, also its jobs', and remove its folder."""
    layout = Layout(folder)
    if not layout.made:
        raise UsageError(f"there is no box in {layout.folder}")
    with _alone(layout):
        _clear(layout)


def status(folder: Path) -> Status:
    """What there is of the box in `folder`."""
    layout = Layout(folder)
    plan = layout.read_plan()
    running = Counter(daemons(layout.folder).values())
    states = node_states(layout) if "slurmctld" in running else {}
    return Status(layout.folder, plan, dict(running), states)


def env(folder: Path) -> dict[str, str]:
    """The variables with which Slurm's commands speak to the box."""
    layout = Layout(folder)
    layout.read_plan()
    return {"SLURM_CONF": str(layout.conf)}


def default_folder(name: str) -> Path:
    """Where the box of that name lives unless told otherwise."""
    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"a box's name is one plain word, not {name!r}")
    return state_folder() / "box" / name


def _standing(layout: Layout, plan: Plan) -> Status | None:
    """The box that stands here already, if it lives."""
    if not layout.made:
        return None
    there = status(layout.folder)
    if not there.up:
        return None
    if not there.plan.same_as(plan):
        raise UsageError(f"another box is up in {layout.folder}; take it down: qtide box down")
    return there


def _put_up(layout: Layout, plan: Plan) -> Status:
    if layout.made:
        _clear(layout)
    ports = free_ports(2 + len(plan.node_names))
    plan = Plan(plan.nodes, plan.qpus, plan.accounting, plan.slurmd_timeout, ports)
    layout.write_plan(plan)
    try:
        prepare(layout, plan)
        start(layout, plan)
    except BaseException:
        end(lambda: [*daemons(layout.folder), *offspring(layout.folder, layout.conf)], END_LIMIT)
        raise
    return status(layout.folder)


def _clear(layout: Layout) -> None:
    """The daemons first: a slurmd that is gone starts nothing more."""
    end(lambda: list(daemons(layout.folder)), END_LIMIT)
    end(lambda: offspring(layout.folder, layout.conf), END_LIMIT)
    shutil.rmtree(layout.folder)


def _wanted(plan: Plan) -> dict[str, int]:
    more = {"slurmdbd": 1, "mariadbd": 1} if plan.accounting else {}
    return {"munged": 1, "slurmctld": 1, "slurmd": len(plan.node_names)} | more


@contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    """Let nobody else work on the same box; the lock is the folder itself and goes with it."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(layout.folder, os.O_RDONLY)
    try:
        lock(handle)
        yield
    except Locked:
        raise QtideError(f"somebody else is working on the box in {layout.folder}") from None
    finally:
        os.close(handle)
