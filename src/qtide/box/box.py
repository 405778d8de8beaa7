"""A box: a real Slurm cluster on this machine, in one folder, started and stopped as a whole."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from qtide.backends.clusters.slurm.commands import clients
from qtide.box.daemons import daemons, end, give_tokens, node_states, offspring, prepare, start
from qtide.box.layout import BoxLayout, BoxPlan
from qtide.box.release import INSTALLED, Release, Tell, usual_path
from qtide.core.errors import QtideError, UsageError
from qtide.core.files import Locked, lock, state_folder
from qtide.core.resources import NodeKind
from qtide.core.sockets import free_ports

END_LIMIT = 10.0
"""Seconds within which killed processes must be gone."""

SLURMD_TIMEOUT = 60
"""Seconds after which an unresponsive node counts as down."""


@dataclass(frozen=True)
class Status:
    """The state of a box."""

    folder: Path
    plan: BoxPlan
    daemons: dict[str, int]
    """The number of running daemons by name."""
    nodes: dict[str, str]
    """The state of each node, as Slurm reports it; empty if Slurm does not answer."""

    @property
    def up(self) -> bool:
        """Whether every daemon is running and Slurm answers."""
        return self.daemons == _wanted(self.plan) and len(self.nodes) == len(self.plan.node_names)


def up(
    folder: Path,
    nodes: int = 3,
    qpus: int = 1,
    accounting: bool = False,
    *,
    service: str | None = None,
    slurmd_timeout: int = SLURMD_TIMEOUT,
    release: str | None = None,
    auth: str | None = None,
    kinds: Sequence[str] = (),
    licences: Sequence[str] = (),
    tell: Tell = lambda _: None,
) -> Status:
    """Start a box; keep one that is already up, and remove the remains of a dead one.

    With `service`, a URL, its jobs get tokens for that vQPU service, even if the box was already
    up. `release` is a Debian release whose Slurm is fetched first, if necessary; without one,
    QTIDE_BOX_RELEASE decides, else the installed Slurm is used. `auth` is `munge` or `slurm`.
    """
    if nodes < 1 or qpus < 1:
        raise UsageError(f"a box has at least one node and one QPU, not {nodes} and {qpus}")
    layout = BoxLayout(folder)
    layout.check()
    release = release or os.environ.get("QTIDE_BOX_RELEASE") or INSTALLED
    programs = Release.named(release, tell)
    auth = programs.accepted(auth)
    programs.require(auth=auth, accounting=accounting)
    for each in licences:
        if not re.fullmatch(r"[\w-]+:[1-9]\d*", each):
            raise UsageError(f"a licence is written as NAME:NUMBER, not {each!r}")
    names = tuple(licences)
    _check_kinds(kinds)
    plan = BoxPlan(nodes, qpus, accounting, slurmd_timeout, (), release, auth, names, tuple(kinds))
    with _alone(layout):
        there = _standing(layout, plan) or _put_up(layout, plan)
        if service is not None:
            give_tokens(layout, service)
        return there


def _check_kinds(kinds: Sequence[str]) -> None:
    """Refuse kinds whose partitions or nodes the box has anyway."""
    for kind in NodeKind.parse_all(kinds):
        if kind.name in ("c", "q", "compute", "quantum"):
            raise UsageError(
                f"a box has a {kind.name} already; give the kind of nodes another name"
            )


def down(folder: Path) -> None:
    """Kill all processes of the box, including its jobs', and remove its folder."""
    layout = BoxLayout(folder)
    if not layout.made:
        raise UsageError(f"there is no box in {layout.folder}")
    with _alone(layout):
        _clear(layout)
    for link in _names().glob("*"):
        if link.is_symlink() and not link.exists():  # the name of a box that is gone
            link.unlink()


def status(folder: Path) -> Status:
    """The state of the box in `folder`."""
    layout = BoxLayout(folder)
    plan = layout.read_plan()
    running = Counter(daemons(layout.folder).values())
    states = node_states(layout) if "slurmctld" in running else {}
    return Status(layout.folder, plan, dict(running), states)


def env(folder: Path) -> dict[str, str]:
    """The environment variables that make Slurm's commands use the box."""
    layout = BoxLayout(folder)
    layout.read_plan()
    usual = usual_path()
    found = {"SLURM_CONF": str(layout.conf)} | clients(layout.conf, usual)
    if "PATH" not in found and usual != os.environ.get("PATH", os.defpath):
        found["PATH"] = usual  # it led to the commands of another box
    return found


def default_folder(name: str) -> Path:
    """The default folder of the box with that name."""
    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"a box's name is one plain word, not {name!r}")
    return _names() / name


def give_name(folder: Path, name: str) -> None:
    """Make a box in another folder available by name, too."""
    link, place = default_folder(name), folder.expanduser().resolve()
    if link.resolve() == place:
        return
    if link.exists():
        raise UsageError(
            f"the box {name} is in {link.resolve()}; give another --name, or take it down: "
            f"qtide box down --name {name}"
        )
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(place)


def _names() -> Path:
    """The folder that holds each box, or a link to it, by name."""
    return state_folder() / "box"


def _standing(layout: BoxLayout, plan: BoxPlan) -> Status | None:
    """The status of the box that is already here, if it is up."""
    if not layout.made:
        return None
    there = status(layout.folder)
    if not there.up:
        return None
    if not there.plan.same_as(plan):
        raise UsageError(
            f"the box in {layout.folder} is up with other options; take it down: "
            f"qtide box down --folder {quote(str(layout.folder))}"
        )
    return there


def _put_up(layout: BoxLayout, plan: BoxPlan) -> Status:
    if layout.made:
        _clear(layout)
    ports = free_ports(2 + len(plan.node_names))
    plan = replace(plan, ports=ports)
    layout.write_plan(plan)
    try:
        prepare(layout, plan)
        start(layout, plan)
    except BaseException:
        end(lambda: [*daemons(layout.folder), *offspring(layout.folder, layout.conf)], END_LIMIT)
        raise
    return status(layout.folder)


def _clear(layout: BoxLayout) -> None:
    """Remove a box; kill the daemons first, so that they start nothing more."""
    end(lambda: list(daemons(layout.folder)), END_LIMIT)
    end(lambda: offspring(layout.folder, layout.conf), END_LIMIT)
    shutil.rmtree(layout.folder)


def _wanted(plan: BoxPlan) -> dict[str, int]:
    more = {"slurmdbd": 1, "mariadbd": 1} if plan.accounting else {}
    more |= {"munged" if plan.auth == "munge" else "sackd": 1}
    return {"slurmctld": 1, "slurmd": len(plan.node_names)} | more


@contextmanager
def _alone(layout: BoxLayout) -> Iterator[None]:
    """Lock the box's folder, so that no other process changes the box."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(layout.folder, os.O_RDONLY)
    try:
        lock(handle)
        yield
    except Locked:
        raise QtideError(
            f"another process is changing the box in {layout.folder}; try again"
        ) from None
    finally:
        os.close(handle)
