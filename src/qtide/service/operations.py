"""What operators do to a service: drain devices, plan maintenance, set allocations.

Drains and maintenance are kept in the store to survive a restart; all of it is in the audit trail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from qtide.core.errors import QtideError, UsageError
from qtide.core.world.world import Lock, World
from qtide.service.allocations import Allocation, AllocationBook
from qtide.service.audit import AuditTrail
from qtide.service.configuration import MaintenanceWindow
from qtide.service.device.served_device import ServedDevice, find_device
from qtide.service.store import Store
from qtide.service.task import Caller, NotFound, check_operates

log = logging.getLogger(__name__)

REASON = "maintenance"
"""The reason shown to users if the operator gives none."""
DRAIN = (
    "INSERT INTO drains VALUES (?, ?, ?, ?) ON CONFLICT (device) DO UPDATE SET"
    " reason = excluded.reason, since = excluded.since, licences = excluded.licences"
)
RESUME = "DELETE FROM drains WHERE device = ? RETURNING licences"
KNOWN = "SELECT reason, licences FROM drains WHERE device = ?"
WITHHELD = "SELECT device, licences FROM drains WHERE licences > 0"
PLAN = "INSERT INTO maintenance (device, start, stop, reason) VALUES (?, ?, ?, ?) RETURNING number"
PLANNED = "SELECT number, device, start, stop, reason FROM maintenance WHERE stop > ? ORDER BY 3"
UNPLAN = "DELETE FROM maintenance WHERE number = ? RETURNING device"


class Operations:
    """The actions of operators; everybody else is refused."""

    def __init__(
        self,
        world: World,
        store: Store,
        devices: Mapping[str, ServedDevice],
        allocations: AllocationBook,
        audit: AuditTrail,
    ) -> None:
        self._world = world
        self._store = store
        self._devices = devices
        self._allocations = allocations
        self._audit = audit
        self._one_at_a_time = Lock(world)
        self._since = world.now()
        """Windows since then are kept: forgetting one would move all open times."""
        self.withhold: Callable[[int, int], Awaitable[None]] | None = None
        """Called with the numbers of drained and remaining slots; makes Slurm grant fewer licences.
        None if Slurm does not admit jobs."""

    def restore(self) -> None:
        """Tell the devices what of them is drained, and what is planned."""
        for row in self._store.read(lambda db: db.execute("SELECT * FROM drains").fetchall()):
            if row["device"] in self._devices:
                self._devices[row["device"]].drain(row["reason"])
        for device in self._devices.values():
            self._plan(device)

    async def drain(
        self, caller: Caller, name: str, reason: str | None = None, *, licences: bool = False
    ) -> None:
        """Start no more tasks on a device, but keep queueing; with `licences`, also tell Slurm.

        If the device is already drained, omitted settings stay as they are.
        """
        check_operates(caller)
        device = find_device(self._devices.values(), name)
        if licences and self.withhold is None:
            raise QtideError("this service is not connected to Slurm, so it cannot change licences")
        async with self._one_at_a_time:  # disk, memory and Slurm have to agree
            known = self._store.read(lambda db: db.execute(KNOWN, (name,)).fetchone())
            withheld = device.setup.slots if licences else known["licences"] if known else 0
            shown = reason or (known["reason"] if known else REASON)
            row = (name, shown, self._world.now(), withheld)
            await self._store.write(lambda db: db.execute(DRAIN, row))
            device.drain(shown)
            if licences:
                await self._tell_slurm()
        what: dict[str, Any] = {"device": name, "licences": licences}
        self._audit.record("device drained", caller.user, reason or "", **what)

    async def resume(self, caller: Caller, name: str) -> None:
        """Start tasks on a device again, and return its licences to Slurm."""
        check_operates(caller)
        device = find_device(self._devices.values(), name)
        async with self._one_at_a_time:
            row = await self._store.write(lambda db: db.execute(RESUME, (name,)).fetchone())
            device.drain(None)
            if row is not None and row["licences"]:
                await self._tell_slurm()
        self._audit.record("device resumed", caller.user, device=name)

    async def plan_maintenance(
        self, caller: Caller, name: str, start: float, end: float, reason: str | None = None
    ) -> tuple[MaintenanceWindow, int]:
        """Start no tasks on a device for a time; also tell how many promises that breaks."""
        check_operates(caller)
        device = find_device(self._devices.values(), name)
        if not start < end or end <= self._world.now():
            raise UsageError("maintenance has to end after its start, and in the future")
        row = (name, start, end, reason or REASON)
        number = await self._store.write(lambda db: db.execute(PLAN, row).fetchone()["number"])
        broken = self._plan(device)
        planned = next(each for each in self._planned() if each.number == number)
        begin, until = (
            time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(each)) for each in (start, end)
        )
        what: dict[str, Any] = {"device": name, "number": number, "start": begin, "end": until}
        log.info("maintenance planned", extra=what | {"broken": broken})
        self._audit.record("maintenance planned", caller.user, planned.reason, **what)
        return planned, broken

    async def cancel_maintenance(self, caller: Caller, number: int) -> None:
        """Cancel planned maintenance, or end it early."""
        check_operates(caller)
        row = await self._store.write(lambda db: db.execute(UNPLAN, (number,)).fetchone())
        if row is None:
            raise NotFound(f"there is no planned maintenance {number}; see: qtide maintenance list")
        if row["device"] in self._devices:
            self._plan(self._devices[row["device"]])
        what: dict[str, Any] = {"device": row["device"], "number": number}
        log.info("maintenance cancelled", extra=what)
        self._audit.record("maintenance cancelled", caller.user, **what)

    async def add_allocation(self, caller: Caller, wanted: Allocation) -> Allocation:
        """Limit what an account or a user may use in a period."""
        check_operates(caller)
        if wanted.device:
            find_device(self._devices.values(), wanted.device)
        made = await self._allocations.add(wanted)
        said = f"{made.whose}: {made}"
        self._audit.record(
            "allocation added", caller.user, made.reason, number=made.number, what=said
        )
        return made

    async def remove_allocation(self, caller: Caller, number: int) -> None:
        """Remove an allocation, which then limits nobody."""
        check_operates(caller)
        found = await self._allocations.remove(number)
        if found is None:
            raise NotFound(f"there is no allocation {number}; see: qtide allocations list")
        said = f"{found.whose}: {found}"
        self._audit.record("allocation removed", caller.user, number=number, what=said)

    def _plan(self, device: ServedDevice) -> int:
        """Tell a device what is planned for it; return how many promises that breaks."""
        return device.plan(each for each in self._planned() if each.device == device.name)

    def _planned(self) -> list[MaintenanceWindow]:
        """All windows that are not over, and those that ended since the service started."""
        rows = self._store.read(lambda db: db.execute(PLANNED, (self._since,)).fetchall())
        names = ("number", "device", "start", "end", "reason")
        return [MaintenanceWindow(**dict(zip(names, tuple(row), strict=True))) for row in rows]

    async def _tell_slurm(self) -> None:
        """Withhold the licences of the drained devices, and of no others."""
        if self.withhold is not None:
            drained = dict(self._store.read(lambda db: db.execute(WITHHELD).fetchall()))
            others = [each for name, each in self._devices.items() if name not in drained]
            remaining = sum(each.setup.slots for each in others if not each.removed)
            await self.withhold(sum(drained.values()), remaining)
