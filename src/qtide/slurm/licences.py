"""Licences that Slurm shall not hand out, while a device drains or has fewer slots than it had.

A reservation of licences alone does it on a live stock Slurm: running jobs keep theirs, new ones
wait with the reason `Licenses`, jobs without a licence notice nothing, and a slurmctld that starts
again still knows of it. It takes the rights of an operator of Slurm.
"""

from __future__ import annotations

import re

from qtide.errors import QtideError, UsageError
from qtide.slurm.commands import Slurm, SlurmFailed

SCONTROL = ("scontrol", "--oneliner")
TERMS = ("starttime=now", "duration=infinite", "users=root", "flags=any_nodes")
"""Of nodes it takes none; a reservation has to be somebody's."""
LICENCE = re.compile(r"^LicenseName=(\S+) Total=(\d+)", re.MULTILINE)
RESERVATION = re.compile(r"^ReservationName=(\S+) .*? Licenses=(\S+)", re.MULTILINE)


class Licences:
    """The licences of one name; what others have reserved of them stays as it is."""

    def __init__(self, slurm: Slurm, name: str = "qpu") -> None:
        self._slurm = slurm
        self._name = name
        self._reservation = f"qtide-withheld-{name}"

    async def total(self) -> int:
        """How many there are, withheld or not."""
        counts = dict(LICENCE.findall(await self._slurm.output(*SCONTROL, "show", "licenses")))
        if self._name not in counts:
            raise UsageError(
                f"Slurm has no licence {self._name}; give it some: Licenses= in slurm.conf"
            )
        return int(counts[self._name])

    async def withheld(self) -> int:
        """How many are withheld now."""
        held = await self._held()
        return int(held.rpartition(":")[2]) if held else 0

    async def withhold(self, number: int) -> None:
        """Let Slurm hand out so many fewer than there are; with 0 it hands out all again."""
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
                f"licences {self._name} cannot be withheld: {error}; it takes an operator of "
                "Slurm, and licences that nobody else has reserved"
            ) from None

    def _command(self, number: int, there: bool) -> list[str]:
        named, licences = f"reservation={self._reservation}", f"licenses={self._name}:{number}"
        if not number:
            return ["delete", named]
        return ["update", named, licences] if there else ["create", named, licences, *TERMS]

    async def _held(self) -> str | None:
        """The licences in our reservation; None if there is no reservation."""
        found = RESERVATION.findall(await self._slurm.output(*SCONTROL, "show", "reservations"))
        held: str | None = dict(found).get(self._reservation)
        return held
