"""The target of a program: what it must know of the device to build payloads that fit.

The next phases of a program depend on it, so the journal of a run keeps it: a run that is resumed
gets the target it began with, even if the device has changed since. A payload that no longer fits
is refused like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qtide.backends.devices.device import takers
from qtide.core.errors import UsageError


@dataclass(frozen=True)
class Target:
    """A device as the service describes one: `name`, `kind` and `properties`."""

    name: str
    kind: str
    properties: dict[str, Any]

    @property
    def formats(self) -> list[str]:
        """The formats of payloads that it takes, such as qpy (Qiskit's circuits) or bqm."""
        return list(self.properties["formats"])

    @property
    def qubits(self) -> int:
        """How many qubits it has; 0 if it takes no circuits."""
        return len(self.properties.get("qubits", ()))

    @property
    def connections(self) -> list[tuple[int, int]]:
        """The pairs of qubits that a gate can act on, by their numbers."""
        place = {name: number for number, name in enumerate(self.properties.get("qubits", ()))}
        pairs = self.properties.get("connections", ())
        return [(place[a], place[b]) for a, b in pairs if {a, b} <= place.keys()]

    @property
    def gates(self) -> list[str]:
        """Its native gates, by Qiskit's names."""
        return list(self.properties.get("gates", ()))

    @property
    def most(self) -> dict[str, int]:
        """The most `shots`, `circuits`, `variables` and so on that it takes at once."""
        return dict(self.properties.get("most", {}))

    def qiskit(self) -> Any:
        """The `qiskit.transpiler.Target` that Qiskit's transpiler takes as `target`."""
        try:
            from qtide.backends.client.backend import target_of
        except ImportError as error:
            raise UsageError(
                f"target.qiskit() needs Qiskit ({error}): pip install 'qtide[gate]'"
            ) from None
        if "qpy" not in self.formats:
            raise UsageError(f"the {self.name} takes no Qiskit circuit{takers('qpy')}")
        return target_of({"name": self.name, "kind": self.kind, "properties": self.properties})
