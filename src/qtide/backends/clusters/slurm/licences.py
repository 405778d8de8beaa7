"""Licences: withhold them while a device drains or has fewer slots, and count those of a job.

A reservation that holds only licences withholds them on a running, unmodified Slurm: running jobs
keep theirs, new ones wait with the reason `Licenses`, and jobs without a licence are not affected.
It survives a restart of slurmctld, and needs the rights of a Slurm operator.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.core.errors import QtideError, UsageError

SCONTROL = ("scontrol", "--oneliner")
TERMS = ("starttime=now", "duration=infinite", "users=root", "flags=any_nodes")
"""Terms of the reservation: it takes no nodes, but must have a user."""
LICENCE = re.compile(r"^LicenseName=(\S+) Total=(\d+)", re.MULTILINE)
RESERVATION = re.compile(r"^ReservationName=(\S+) .*? Licenses=(\S+)", re.MULTILINE)


class Licences:
    """The licences of one name; reservations made by others remain unchanged."""

    def __init__(self, slurm: Slurm, name: str = "qpu") -> None:
        self._slurm = slurm
        self._name = name
        self._reservation = f"qtide-withheld-{name}"

    async def total(self) -> int:
        """Total number of licences, withheld or not."""
        counts = dict(LICENCE.findall(await self._slurm.output(*SCONTROL, "show", "licenses")))
        if self._name not in counts:
            raise UsageError(
                f"Slurm has no licence {self._name}; define it: Licenses= in slurm.conf"
            )
        return int(counts[self._name])

    async def withheld(self) -> int:
        """Number of licences withheld now."""
        held = await self._held()
        return int(held.rpartition(":")[2]) if held else 0

    async def withhold(self, number: int) -> None:
        """Withhold `number` licences from Slurm's jobs; 0 makes all available again."""
        total = await self.total()
        if not 0 <= number <= total:
            raise UsageError(f"of {total} licences {self._name}, {number} cannot be withheld")
        there = await self._held() is not None
        if not number and not there:
            return
        try:
            await self._slurm.output(*SCONTROL, *self._command(number, there))
        except SlurmFailed as error:
            raise QtideError(
                f"licences {self._name} cannot be withheld: {error}; it takes a Slurm operator, "
                "and licences that are not reserved otherwise"
            ) from None

    async def withhold_drained(self, drained: int, remaining: int) -> None:
        """Withhold the licences of slots on drained devices.

        All devices share one licence name. So enough licences stay available for the slots of the
        other devices, even if Slurm has fewer licences than all devices together have slots.
        """
        spare = max(0, await self.total() - remaining)
        await self.withhold(min(drained, spare))

    async def withhold_for(self, seconds: float) -> None:
        """Withhold all licences for a time, unless told again; 0 makes them available at once."""
        if seconds > 0:
            await self.reserve(self._reservation, time.time(), time.time() + seconds)
        elif await self._held() is not None:
            await self.release(self._reservation)

    async def reserve(self, reservation: str, start: float, end: float) -> None:
        """Let nobody have any licence from a start to an end, both in seconds since 1970."""
        named, until = f"reservation={reservation}", f"endtime={_local(end)}"
        if reservation in dict(await self._reservations()):
            try:
                await self._slurm.output(*SCONTROL, "update", named, until)
            except SlurmFailed:  # it has ended, and Slurm has not removed it yet
                await self.release(reservation)
            else:
                return
        begin = "now" if start <= time.time() else _local(start)
        licences = f"licenses={self._name}:{await self.total()}"
        terms = (licences, f"starttime={begin}", until, "users=root", "flags=any_nodes")
        await self._slurm.output(*SCONTROL, "create", named, *terms)

    async def release(self, reservation: str) -> None:
        """Remove a reservation."""
        await self._slurm.output(*SCONTROL, "delete", f"reservation={reservation}")

    async def reservations(self, prefix: str) -> list[str]:
        """The names of our reservations that begin with a prefix."""
        return [name for name, _ in await self._reservations() if name.startswith(prefix)]

    async def _reservations(self) -> list[tuple[str, str]]:
        found = await self._slurm.output(*SCONTROL, "show", "reservations")
        return [(name, licences) for name, licences in RESERVATION.findall(found)]

    def _command(self, number: int, there: bool) -> list[str]:
        named, licences = f"reservation={self._reservation}", f"licenses={self._name}:{number}"
        if not number:
            return ["delete", named]
        return ["update", named, licences] if there else ["create", named, licences, *TERMS]

    async def _held(self) -> str | None:
        """The licences in our reservation; None if there is no reservation."""
        return dict(await self._reservations()).get(self._reservation)


def _local(at: float) -> str:
    """A time as scontrol reads it; reservations have whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


SLOT_NAMES = frozenset({"qpu"})
"""Default names of a slot, as a licence or as GRES."""

SLOT_LICENCE = re.compile(r"(?P<name>[^:@=]+)(?:@[^:=]+)?(?:[:=](?P<count>\d+))?")
"""Matches `qpu`, `qpu:2`, `qpu=2`, and remote licences with their server: `qpu@dbd:2`."""

GRES = re.compile(
    r"(?:gres[:/])?(?P<name>[^:=/]+)(?::(?P<kind>[^:=\d][^:=]*))?(?:[:=](?P<count>\d+))?"
)
"""Matches `gres:qpu:1`, `gres/qpu:1`, `gres/qpu=1`, `qpu:1`, `qpu`; with a type:
`gres:qpu:star:1`."""


def slots_held(licences: str, gres: str, nodes: int, names: Collection[str] = SLOT_NAMES) -> int:
    """Number of slots that a job holds; a slot requested in both ways counts once."""
    return max(_sum(SLOT_LICENCE, licences, names), _sum(GRES, gres, names) * nodes)


def _sum(form: re.Pattern[str], text: str, names: Collection[str]) -> int:
    """Sum the slots; unparsed words count as none, as the other of two alternatives may apply."""
    found = (form.fullmatch(word) for word in text.split(","))
    return sum(int(each["count"] or 1) for each in found if each and each["name"] in names)
