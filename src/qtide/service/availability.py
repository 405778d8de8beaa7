"""Keeps Slurm informed which devices take work, so that no job gets nodes while its QPU is away.

Each device has a licence of its own. While a device takes no work, its licences are withheld by a
reservation that ends by itself: if the service is lost, what Slurm believes expires. Planned
maintenance is a reservation of its own, so that Slurm starts no job that would run into it. What
licences cannot express stands in a file that job_submit.lua reads at every submission.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.clusters.slurm.licences import Licences
from qtide.core.errors import QtideError
from qtide.core.files import write_whole
from qtide.service.configuration import AvailabilityPlan
from qtide.service.device.served_device import ServedDevice
from qtide.service.service import Service
from qtide.service.task import Caller

log = logging.getLogger(__name__)

PLANNED = "qtide-maintenance-"
AWAY = ("error", "starting", "calibration")
"""States of a device that takes no work for now."""


@dataclass
class Verdict:
    """What was last seen of a device, since when, and what Slurm was told."""

    seen: str | None
    since: float
    told: str | None = None


class Availability:
    """What Slurm is told about the devices of a service."""

    def __init__(self, service: Service, slurm: Slurm, plan: AvailabilityPlan) -> None:
        self._service = service
        self._slurm = slurm
        self._plan = plan
        self._verdicts: dict[str, Verdict] = {}
        self._failed: set[str] = set()
        """Licences about which Slurm was last told in vain."""

    async def look(self) -> None:
        """Tell Slurm what has changed, and again what has not, before it expires."""
        for device in [*self._service.devices.values()]:
            why = self.judge(device)
            if not self._plan.dry_run:
                await self._tell(device, why)
        if self._plan.file is not None:
            text = "".join(f"{line}\n" for line in self.lines())
            write_whole(self._plan.file, text.encode(), 0o644)

    def judge(self, device: ServedDevice) -> str | None:
        """Why a device's licences are to be withheld; None if they are not.

        Operators are believed at once; faults, and ends of faults, have to last.
        """
        now = self._service.now()
        known = self._verdicts.setdefault(device.name, Verdict(None, now))
        seen, at_once = self._seen(device, known.told)
        if seen != known.seen:
            known.seen, known.since = seen, now
        lasts = now - known.since >= self._plan.settle
        if known.told != seen and (at_once or lasts):
            extra = {"device": device.name, "why": seen or "available", "dry": self._plan.dry_run}
            log.info("licences withheld" if seen else "licences available", extra=extra)
            known.told = seen
        return known.told

    def lines(self) -> Iterator[str]:
        """The file for job_submit.lua: one fact per line, times in seconds since 1970."""
        plan, now = self._plan, self._service.now()
        before, _, after = plan.licence.partition("{device}")
        yield f"written {now:.0f} {plan.fresh:.0f}"
        yield f"licence {before}* {after}".rstrip()
        yield f"when_down {plan.when_down}"
        for device in self._service.devices.values():
            why = self._verdicts[device.name].told if device.name in self._verdicts else None
            back = device.back
            until = 0 if back is None else back
            yield f"device {device.name} " + (f"down {until:.0f} {_plain(why)}" if why else "up")
        for account in self._service.configuration.quotas.accounts:
            for left in self._service.quotas_left(Caller("", account)):
                daily = left["of"] == "account" and left["tasks"] is not None
                if daily and left["qpu_seconds_left"] == 0:
                    yield f"account {account} has used its QPU seconds of today"
        allocations = self._service.allocations
        for account in allocations.of_accounts():
            why = allocations.why_nothing_left(Caller("", account), self._service.devices)
            if why is not None:
                yield _plain(why.removeprefix("the "))

    def _seen(self, device: ServedDevice, told: str | None) -> tuple[str | None, bool]:
        """Why a device takes no work, if so; and whether to believe that at once."""
        state, reason = device.state, device.reason
        if device.why_waiting() == "maintenance":
            return f"maintenance: {reason}", True
        if state in AWAY:
            return f"{state}: {reason}" if reason else state, False
        if self._plan.most_wait is not None:
            limit = self._plan.most_wait / (2 if told == "saturated" else 1)
            if (device.expected_wait or 0.0) > limit:
                return "saturated", False
        return None, bool(told and told.startswith("maintenance"))

    async def _tell(self, device: ServedDevice, why: str | None) -> None:
        """Renew or end what Slurm believes about a device, and reserve what is planned."""
        name = self._plan.licence.replace("{device}", device.name)
        licences = Licences(self._slurm, name)
        try:
            await licences.withhold_for(self._seconds(device) if why else 0.0)
            planned = {f"{PLANNED}{name}-{each.number}": each for each in device.maintenance}
            for old in await licences.reservations(f"{PLANNED}{name}-"):
                if old not in planned:
                    await licences.release(old)
            for reservation, each in planned.items():
                await licences.reserve(reservation, each.start, each.end)
        except (SlurmFailed, QtideError) as error:
            if name not in self._failed:
                log.warning("Slurm was not told", extra={"licence": name, "why": str(error)})
            self._failed.add(name)
        else:
            self._failed.discard(name)

    def _seconds(self, device: ServedDevice) -> float:
        """For how long to withhold licences; planned maintenance reserves the same ones itself."""
        now = self._service.now()
        starts = [each.start - now for each in device.maintenance]
        return max(0.0, min([self._plan.fresh, *starts]))


def _plain(text: str) -> str:
    """A text as the rest of a line."""
    return " ".join(text.split())
