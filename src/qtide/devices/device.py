"""What every device offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from qtide.errors import PhaseError
from qtide.payloads.payload import Burst, PayloadRefused


class DeviceFailed(PhaseError):  # noqa: N818 - what happened
    """The device could not give an answer to a payload that it takes."""


class DeviceAway(DeviceFailed):
    """The device cannot be reached at the moment: it is no fault of the payload's."""


class Device(ABC):
    """Computes answers. How long that seems to take is for the timing profile to say.

    Bursts are answered by every device, so that a workload known by its times alone runs anywhere.
    """

    name: str
    most_shots: int = 100_000

    def check(self, payload: Any) -> None:
        """Raise PayloadRefused, with a sentence, if the device cannot take the payload."""
        if not isinstance(payload, Burst):
            self._check(payload)

    def solve(self, payload: Any, shots: int, seed: int) -> Any:
        """The answer; the same for the same payload, shots and seed."""
        if isinstance(payload, Burst):
            return payload.answer
        if not 0 < shots <= self.most_shots:
            raise PayloadRefused(f"the {self.name} takes 1 to {self.most_shots} shots, not {shots}")
        return self._solve(payload, shots, seed)

    def warm_up(self) -> None:  # noqa: B027 - some devices have nothing to do
        """Do beforehand what the first payload would else wait for, such as imports."""

    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """What a client should know beforehand, as JSON; no SDK is imported to say so.

        `formats` it takes, the `most` of shots, circuits and so on; of a gate device its `qubits`,
        `connections` and `gates`.
        """

    @abstractmethod
    def _check(self, payload: Any) -> None:
        """`check` of anything but a burst."""

    @abstractmethod
    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        """`solve` of anything but a burst."""
