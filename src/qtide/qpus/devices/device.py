"""What every device offers."""

from __future__ import annotations

from typing import Any, Protocol


class Device(Protocol):
    """Computes answers. How long that seems to take is for the timing profile to say."""

    name: str

    def check(self, payload: Any) -> None:
        """Raise PayloadRefused, with a sentence, if the device cannot take the payload."""

    def solve(self, payload: Any, shots: int, seed: int) -> Any:
        """The answer; the same for the same payload, shots and seed."""
