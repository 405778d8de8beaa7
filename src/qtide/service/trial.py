"""A trial of a configuration: everything is started once, and what does not start is named."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator

from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.devices.process import Process, WorkerLost
from qtide.core.errors import QtideError
from qtide.service.configuration import Configuration, DeviceSetup

AT_ONCE = 2
"""Devices that are started at a time: vendors' packages are large."""


def troubles(configuration: Configuration) -> list[str]:
    """What would not work, one sentence each."""
    return [*asyncio.run(_devices(configuration)), *_slurm(configuration)]


async def _devices(configuration: Configuration) -> list[str]:
    places = asyncio.Semaphore(AT_ONCE)
    started = [_start(places, *each) for each in configuration.devices.items()]
    return [trouble for trouble in await asyncio.gather(*started) if trouble is not None]


async def _start(places: asyncio.Semaphore, name: str, setup: DeviceSetup) -> str | None:
    """Start a device as the service would, and end it again."""
    async with places:
        with tempfile.TemporaryFile() as log:
            try:
                worker = await Process.start(setup.kind, setup.options, setup.python, log)
            except WorkerLost as error:
                log.seek(0)
                last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
                return f"devices.{name}: {error}" + (f" ({last})" if last else "")
            await worker.end()
    return None


def _slurm(configuration: Configuration) -> Iterator[str]:
    if configuration.slurm is None:
        return
    try:
        Slurm(configuration.slurm.conf).check()
    except QtideError as error:
        yield f"slurm: {error}"
