"""A device that takes only bursts: a QPU reduced to its timing."""

from __future__ import annotations

from typing import Any

from qtide.backends.devices.device import Device
from qtide.backends.payloads.payload import PayloadRefused


class Bursts(Device):
    """Returns the answer that each burst carries."""

    name = "burst"
    light = True

    def properties(self) -> dict[str, Any]:
        """One format, no limits."""
        return {"formats": ["burst"], "most": {}}

    def _check(self, payload: Any) -> None:
        kind = type(payload).__name__
        raise PayloadRefused(f"this device takes only bursts, not {kind}")

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        self._check(payload)
