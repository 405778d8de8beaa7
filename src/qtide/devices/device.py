"""What every device offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from qtide.errors import PhaseError
from qtide.payloads.payload import Burst, PayloadRefused


class DeviceFailed(PhaseError):  # noqa: N818 - what happened
    """The device could not give an answer to a payload that it takes."""


class DeviceAway(DeviceFailed):
    """The device cannot be reached at the moment; the payload is not at fault."""


class Device(ABC):
    """Computes answers. How long that appears to take is decided by the timing profile.

    Every device answers bursts, so that a workload that consists only of durations runs anywhere.
    """

    name: str
    most_shots: int = 100_000
    usual_profile: str | None = "superconducting"
    """The timing profile of a run that names none; None if the device takes its own time."""
    light = False
    """Whether a driver computes its answers itself: it needs only what qtide itself needs."""
    extra: str | None = None
    """The optional part of qtide that installs what it needs."""

    def check(self, payload: Any) -> None:
        """Raise PayloadRefused, with a sentence, if the device cannot take the payload."""
        if not isinstance(payload, Burst):
            self._check(payload)

    def check_shots(self, shots: int) -> None:
        """Raise PayloadRefused if the device cannot take so many, or so few."""
        if not 0 < shots <= self.most_shots:
            raise PayloadRefused(f"the {self.name} takes 1 to {self.most_shots} shots, not {shots}")

    def solve(self, payload: Any, shots: int, seed: int) -> Any:
        """The answer; the same for the same payload, shots and seed."""
        if isinstance(payload, Burst):
            return payload.answer
        self.check_shots(shots)
        return self._solve(payload, shots, seed)

    def warm_up(self) -> None:  # noqa: B027 - some devices have nothing to do
        """Do in advance what the first payload would otherwise wait for, such as imports."""

    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """What a client should know beforehand, as JSON, without importing an SDK.

        The `formats` it takes, limits (`most`) on shots, circuits and so on; for a gate device its
        `qubits`, `connections` and `gates`.
        """

    @abstractmethod
    def _check(self, payload: Any) -> None:
        """`check` for anything but a burst."""

    @abstractmethod
    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        """`solve` for anything but a burst."""
