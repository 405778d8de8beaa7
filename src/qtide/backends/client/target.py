"""The target of a program: what it must know about the device to build payloads that fit.

Later phases of a program depend on it, so the run's journal stores it: a resumed run gets the
target it began with, even if the device has changed since. The device refuses a payload that no
longer fits, like any other.
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
        """The payload formats that it takes, such as qpy (Qiskit circuits) or bqm."""
        return list(self.properties["formats"])

    @property
    def qubits(self) -> int:
        """The number of qubits; 0 if it takes no circuits."""
        return len(self.properties.get("qubits", ()))

    @property
    def connections(self) -> list[tuple[int, int]]:
        """The pairs of qubits, by index, on which a two-qubit gate can act."""
        place = {name: number for number, name in enumerate(self.properties.get("qubits", ()))}
        pairs = self.properties.get("connections", ())
        return [(place[a], place[b]) for a, b in pairs if {a, b} <= place.keys()]

    @property
    def gates(self) -> list[str]:
        """Its native gates, by Qiskit's names."""
        return list(self.properties.get("gates", ()))

    @property
    def most(self) -> dict[str, int]:
        """The limits on `shots`, `circuits`, `variables` and so on of one payload."""
        return dict(self.properties.get("most", {}))

    def check(self, payload: str) -> None:
        """Refuse the device for a program whose payloads have this format; empty is unknown."""
        if payload and payload not in self.formats:
            raise UsageError(
                f"the program's payloads are {payload}, which the {self.name} does not take"
                f"{takers(payload)}"
            )

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
