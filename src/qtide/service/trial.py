"""A trial run of a configuration, which starts everything once and reports failures."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator

from qtide.backends.clusters.slurm.commands import Slurm, accounts_are_checked
from qtide.backends.clusters.slurm.licences import Licences
from qtide.backends.devices.device import Process, WorkerLost
from qtide.core.errors import QtideError
from qtide.service.configuration import Configuration, DeviceSetup

AT_ONCE = 2
"""Devices to start at a time, since vendors' packages are large."""


def troubles(configuration: Configuration) -> list[str]:
    """What would not work, one sentence per problem."""
    return [*asyncio.run(_devices(configuration)), *_slurm(configuration)]


async def _devices(configuration: Configuration) -> list[str]:
    places = asyncio.Semaphore(AT_ONCE)
    started = [_start(places, *each) for each in configuration.devices.items()]
    return [trouble for trouble in await asyncio.gather(*started) if trouble is not None]


async def _start(places: asyncio.Semaphore, name: str, setup: DeviceSetup) -> str | None:
    """Start a device as the service would, and end it; return the problem, if any."""
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
    slurm = Slurm(configuration.slurm.conf)
    try:
        slurm.check()
        slots = sum(each.slots for each in configuration.devices.values())
        licences = asyncio.run(Licences(slurm, configuration.slurm.licence).total())
        if slots < licences:
            yield (
                f"slurm: there are {licences} licences {configuration.slurm.licence}, but the "
                f"devices have {slots} slots; some jobs will be refused"
            )
    except QtideError as error:
        yield f"slurm: {error}"


async def without_effect(configuration: Configuration) -> str | None:
    """Warn of settings by account that have no effect because Slurm does not check accounts."""
    named = bool(configuration.fair.shares or configuration.quotas.accounts)
    slurm = configuration.slurm
    if slurm is None or slurm.trust_accounts or not named:
        return None
    try:
        if await accounts_are_checked(Slurm(slurm.conf)):
            return None
    except QtideError:
        return None
    return (
        "shares and quotas of accounts have no effect on Slurm's jobs: Slurm does not check who "
        "may use which account (AccountingStorageEnforce), so jobs have none here; let it check "
        "them, or set trust_accounts = true in [slurm]"
    )
