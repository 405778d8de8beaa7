"""Drained devices: no new task is started on them until an operator resumes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from qtide.errors import QtideError
from qtide.service.device.device import ServedDevice
from qtide.service.store import Store
from qtide.world import World
from qtide.world.lock import Lock

DRAIN = "INSERT OR REPLACE INTO drains VALUES (?, ?, ?, ?)"
RESUME = "DELETE FROM drains WHERE device = ? RETURNING licences"
KNOWN = "SELECT reason, licences FROM drains WHERE device = ?"
WITHHELD = "SELECT coalesce(sum(licences), 0) FROM drains"

REASON = "maintenance"
"""What users are told if the operator says nothing."""


class Drains:
    """Which devices are drained: in the store, so that a restart does not forget it."""

    def __init__(self, store: Store, devices: Mapping[str, ServedDevice], world: World) -> None:
        self._world = world
        self._one_at_a_time = Lock(world)
        self._store = store
        self._devices = devices
        self.withhold: Callable[[int], Awaitable[None]] | None = None
        """Lets Slurm grant so many licences fewer; None if Slurm does not admit jobs."""

    def restore(self) -> None:
        """Drain the devices that were drained before a restart."""
        for row in self._store.read(lambda db: db.execute("SELECT * FROM drains").fetchall()):
            if row["device"] in self._devices:
                self._devices[row["device"]].drain(row["reason"])

    async def drain(self, device: ServedDevice, reason: str | None, *, licences: bool) -> None:
        """Start no new task on a device; submitted ones are queued. Slurm may be told as well.

        Of a device that is drained already, what is not said again stays as it is.
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
        """Resume a device."""
        words = (device.name,)
        async with self._one_at_a_time:
            row = await self._store.write(lambda db: db.execute(RESUME, words).fetchone())
            device.drain(None)
            if row is not None and row["licences"]:
                await self._tell_slurm()

    async def _tell_slurm(self) -> None:
        if self.withhold is not None:
            await self.withhold(self._store.read(lambda db: db.execute(WITHHELD).fetchone()[0]))
