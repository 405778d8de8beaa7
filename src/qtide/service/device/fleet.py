"""The devices of a service, which can be added, changed and removed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from qtide.core.errors import QtideError, UsageError
from qtide.core.world.world import BackgroundTasks, Lock, World
from qtide.service.configuration import DeviceSetup, MaintenanceWindow
from qtide.service.device.served_device import ServedDevice
from qtide.service.store import Store

log = logging.getLogger(__name__)

Make = Callable[[str, DeviceSetup], ServedDevice]


class Fleet:
    """All devices by name, in the order of the configuration."""

    def __init__(self, world: World, make: Make, setups: Mapping[str, DeviceSetup]) -> None:
        self.devices = {name: make(name, setup) for name, setup in setups.items()}
        self.on_new: Callable[[ServedDevice], None] = lambda _: None
        """Called with each new or replacing device before it starts."""
        self._make = make
        self._one_at_a_time = Lock(world)
        self._world = world

    def start(self, background: BackgroundTasks) -> None:
        """Start all devices."""
        self._background = background
        for device in self.devices.values():
            device.start(background)

    def change(self, setups: Mapping[str, DeviceSetup]) -> None:
        """Switch to the devices of another configuration; busy ones finish their tasks first."""
        for name in self.devices.keys() - setups.keys():
            self.devices[name].removed = True
        self._background.start(self._changed(dict(setups)))

    async def _changed(self, setups: dict[str, DeviceSetup]) -> None:
        async with self._one_at_a_time:
            names = [*self.devices, *(name for name in setups if name not in self.devices)]
            await self._world.all_of([self._become(name, setups.get(name)) for name in names])

    async def _become(self, name: str, setup: DeviceSetup | None) -> None:
        old = self.devices.get(name)
        if old is not None and old.setup == setup:
            old.removed = False
            return
        if old is not None:
            await old.retire()
        if setup is None:
            del self.devices[name]
            log.info("device removed", extra={"device": name})
            return
        new = self.devices[name] = self._make(name, setup)
        if old is not None:
            new.succeed(old)
        self.on_new(new)
        new.start(self._background)


DRAIN = (
    "INSERT INTO drains VALUES (?, ?, ?, ?) ON CONFLICT (device) DO UPDATE SET"
    " reason = excluded.reason, since = excluded.since, licences = excluded.licences"
)
RESUME = "DELETE FROM drains WHERE device = ? RETURNING licences"
KNOWN = "SELECT reason, licences FROM drains WHERE device = ?"
WITHHELD = "SELECT device, licences FROM drains WHERE licences > 0"

REASON = "maintenance"
"""The reason shown to users if the operator gives none."""


class Drains:
    """The drained devices, kept in the store to survive a restart."""

    def __init__(self, store: Store, devices: Mapping[str, ServedDevice], world: World) -> None:
        self._world = world
        self._one_at_a_time = Lock(world)
        self._store = store
        self._devices = devices
        self.withhold: Callable[[int, int], Awaitable[None]] | None = None
        """Called with the numbers of drained and remaining slots; withholds the licences of the
        drained ones only. None if Slurm does not admit jobs."""

    def restore(self) -> None:
        """Drain the devices that were drained before a restart."""
        for row in self._store.read(lambda db: db.execute("SELECT * FROM drains").fetchall()):
            if row["device"] in self._devices:
                self._devices[row["device"]].drain(row["reason"])

    async def drain(self, device: ServedDevice, reason: str | None, *, licences: bool) -> None:
        """Start no more tasks on a device, but keep queueing; with `licences`, also tell Slurm.

        If the device is already drained, omitted settings stay as they are.
        """
        if licences and self.withhold is None:
            raise QtideError("this service is not connected to Slurm, so it cannot change licences")
        async with self._one_at_a_time:  # disk, memory and Slurm have to agree
            known = self._store.read(lambda db: db.execute(KNOWN, (device.name,)).fetchone())
            withheld = device.setup.slots if licences else known["licences"] if known else 0
            reason = reason or (known["reason"] if known else REASON)
            row = (device.name, reason, self._world.now(), withheld)
            await self._store.write(lambda db: db.execute(DRAIN, row))
            device.drain(reason)
            if licences:
                await self._tell_slurm()

    async def resume(self, device: ServedDevice) -> None:
        """Start tasks on a device again, and return its licences to Slurm."""
        words = (device.name,)
        async with self._one_at_a_time:
            row = await self._store.write(lambda db: db.execute(RESUME, words).fetchone())
            device.drain(None)
            if row is not None and row["licences"]:
                await self._tell_slurm()

    async def _tell_slurm(self) -> None:
        if self.withhold is not None:
            drained = dict(self._store.read(lambda db: db.execute(WITHHELD).fetchall()))
            others = [each for name, each in self._devices.items() if name not in drained]
            remaining = sum(each.setup.slots for each in others if not each.removed)
            await self.withhold(sum(drained.values()), remaining)


PLAN = "INSERT INTO maintenance (device, start, stop, reason) VALUES (?, ?, ?, ?) RETURNING number"
PLANNED = "SELECT number, device, start, stop, reason FROM maintenance WHERE stop > ? ORDER BY 3"
UNPLAN = "DELETE FROM maintenance WHERE number = ? RETURNING device"


class Maintenance:
    """Planned maintenance of the devices, kept in the store."""

    def __init__(self, store: Store, devices: Mapping[str, ServedDevice], world: World) -> None:
        self._store = store
        self._devices = devices
        self._world = world
        self._since = world.now()
        """Windows since then are kept: forgetting one would move all open times."""

    def restore(self) -> None:
        """Tell the devices what is planned."""
        for device in self._devices.values():
            device.plan(each for each in self.planned() if each.device == device.name)

    def planned(self) -> list[MaintenanceWindow]:
        """All windows that are not over, and those that ended since the service started."""
        rows = self._store.read(lambda db: db.execute(PLANNED, (self._since,)).fetchall())
        names = ("number", "device", "start", "end", "reason")
        return [MaintenanceWindow(**dict(zip(names, tuple(row), strict=True))) for row in rows]

    async def add(
        self, device: ServedDevice, start: float, end: float, reason: str | None
    ) -> tuple[MaintenanceWindow, int]:
        """Plan maintenance of a device; return it, and how many promises it breaks."""
        now = self._world.now()
        if not start < end or end <= now:
            raise UsageError("maintenance has to end after its start, and in the future")
        row = (device.name, start, end, reason or REASON)
        number = await self._store.write(lambda db: db.execute(PLAN, row).fetchone()["number"])
        broken = device.plan(each for each in self.planned() if each.device == device.name)
        log.info(
            "maintenance planned",
            extra={"device": device.name, "start": start, "end": end, "broken": broken},
        )
        planned = next(each for each in self.planned() if each.number == number)
        return planned, broken

    async def remove(self, number: int) -> str | None:
        """Cancel planned maintenance; return its device, None if there is none of that number."""
        row = await self._store.write(lambda db: db.execute(UNPLAN, (number,)).fetchone())
        if row is None:
            return None
        self.restore()
        log.info("maintenance cancelled", extra={"device": row["device"], "number": number})
        return str(row["device"])
