"""The devices of a service, which can be added, changed and removed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from qtide.core.world.world import BackgroundTasks, Lock, World
from qtide.service.configuration import DeviceSetup
from qtide.service.device.served_device import ServedDevice

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
