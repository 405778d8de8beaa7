"""The devices, presented as quantum computers in the format of IQM's clients."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from qtide.service.device.served_device import ServedDevice, computer_id
from qtide.service.service import Service
from qtide.service.task import CalibrationSet, Caller, NotFound

START_LIMIT = 10.0
"""Maximum seconds that a request waits for devices that are starting."""
PAIRS = ("cz", "move")
UNCALIBRATED = ("barrier", "delay")
"""Operations that every qubit has, which an architecture does not list."""


def calibration_set(device: ServedDevice) -> CalibrationSet:
    """The device's calibration set; every device that is shown has one."""
    found = device.calibration_set
    assert found is not None
    return found


@dataclass(frozen=True)
class Computer:
    """A device that accepts IQM circuits."""

    device: ServedDevice

    @property
    def id(self) -> UUID:
        """Its id, which some versions of the clients use; others use its alias."""
        return computer_id(self.device.name)

    def described(self) -> dict[str, Any]:
        """Describe it in a list; without a proxy, clients report that pulses are not offered."""
        name = self.device.name
        return {"id": str(self.id), "alias": name, "display_name": name, "proxy_path": None}

    def health(self) -> dict[str, Any]:
        """Whether it starts tasks now, or will after a planned pause."""
        healthy = self.device.why_waiting() in ("queue", "calibration")
        return {"healthy": healthy, "updated_at": _moment()}

    def static_architecture(self) -> dict[str, Any]:
        """The qubits, resonators and connections of the chip."""
        properties = self.device.properties
        return {
            "dut_label": self.device.name,
            "qubits": properties["qubits"],
            "computational_resonators": properties.get("resonators", []),
            "connectivity": properties["connections"],
        }

    def dynamic_architecture(self) -> dict[str, Any]:
        """Which gates can act on which qubits."""
        properties = self.device.properties
        names = [name for name in properties["operations"] if name not in UNCALIBRATED]
        return {
            "calibration_set_id": calibration_set(self.device).id,
            "qubits": properties["qubits"],
            "computational_resonators": properties.get("resonators", []),
            "gates": {name: _gate(self._loci(name)) for name in names},
        }

    def calibration_set(self) -> dict[str, Any]:
        """Its calibration set: the coherence times, if the device knows them."""
        return self._observations("calibration-set", "characterization.")

    def quality_metrics(self) -> dict[str, Any]:
        """The measured quality of its gates and of its readout."""
        described = calibration_set(self.device).id
        found = self._observations("quality-metric-set", "metrics.")
        name = str(uuid5(computer_id(self.device.name), f"{described} metrics"))
        return found | {"observation_set_id": name, "describes_id": described}

    def check_calibration(self, name: str) -> None:
        """Refuse a calibration set that the computer does not have."""
        if name not in ("default", calibration_set(self.device).id):
            raise NotFound(
                f"{self.device.name} has no calibration set {name!r}; use its default one"
            )

    def _observations(self, kind: str, prefix: str) -> dict[str, Any]:
        found = calibration_set(self.device)
        at = datetime.fromtimestamp(found.at, UTC).isoformat()
        return {
            "observation_set_type": kind,
            "observation_set_id": found.id,
            "describes_id": None,
            "dut_label": self.device.name,
            "created_timestamp": at,
            "end_timestamp": at,
            "invalid": False,
            "observations": [
                _observation(number, name, value, at)
                for number, (name, value) in enumerate(found.metrics.items())
                if name.startswith(prefix)
            ],
        }

    def _loci(self, gate: str) -> list[list[str]]:
        properties = self.device.properties
        loci = properties.get("loci", {}).get(gate)
        if loci is None:
            pairs = properties["connections"]
            loci = pairs if gate in PAIRS else [[qubit] for qubit in properties["qubits"]]
        found: list[list[str]] = loci
        return found


class Computers:
    """The devices that this API shows."""

    def __init__(self, service: Service) -> None:
        self._service = service  # its devices may change

    async def all(self, caller: Caller) -> list[Computer]:
        """The computers that a caller may use; waits until starting devices know their formats."""
        return await self._of(self._service.offered("iqm", caller))

    async def find(self, name: str, caller: Caller) -> Computer:
        """Find the computer with that alias or id."""
        named = [
            each
            for each in self._service.offered("iqm", caller)
            if name in (each.name, str(computer_id(each.name)))
        ]
        for computer in await self._of(named):
            return computer
        known = ", ".join(each.device.name for each in await self.all(caller)) or "none"
        raise NotFound(f"there is no quantum computer {name!r}; there are: {known}")

    async def _of(self, devices: list[ServedDevice]) -> list[Computer]:
        end = time.monotonic() + START_LIMIT
        for device in devices:
            await device.tried(max(0.0, end - time.monotonic()))
        fitting = (each for each in devices if "iqm" in each.properties.get("formats", ()))
        return [Computer(each) for each in fitting]


def _observation(number: int, name: str, value: float, at: str) -> dict[str, Any]:
    return {
        "observation_id": number,
        "dut_field": name,
        "unit": "s" if name.endswith("_time") else "",
        "value": value,
        "uncertainty": None,
        "invalid": False,
        "created_timestamp": at,
        "modified_timestamp": at,
    }


def _gate(loci: list[list[str]]) -> dict[str, Any]:
    return {
        "implementations": {"default": {"loci": loci}},
        "default_implementation": "default",
        "override_default_implementation": {},
    }


def _moment() -> str:
    return datetime.now(UTC).isoformat()


MAPPING, KEY, VALUE, AWG, CHANNEL, SAMPLING_RATE, SOURCES = 1, 1, 2, 1, 1, 1, 3
"""Field numbers of the nested messages."""
BYTES, DOUBLE = 2, 1
"""Wire types: how the value of a field is encoded."""
CONDITIONAL = "cc_prx"


def channel_properties(properties: dict[str, Any]) -> bytes:
    """Encode one channel per qubit, with its feedback source, as protobuf.

    Clients derive from it which qubits can control each other. Here all can, if the device has
    conditional gates at all, so all channels have the same source.
    """
    sources = ["feedback"] if CONDITIONAL in properties["operations"] else []
    return b"".join(_channel(qubit, sources) for qubit in properties["qubits"])


def _channel(qubit: str, sources: list[str]) -> bytes:
    rate = _tag(SAMPLING_RATE, DOUBLE) + struct.pack("<d", 1.0)
    feedback = b"".join(_field(SOURCES, each.encode()) for each in sources)
    entry = _field(AWG, _field(CHANNEL, rate) + feedback)
    name = f"{qubit}__drive.awg".encode()
    return _field(MAPPING, _field(KEY, name) + _field(VALUE, entry))


def _field(number: int, data: bytes) -> bytes:
    return _tag(number, BYTES) + _varint(len(data)) + data


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    """Encode a number with seven bits per byte, lowest first; mark all bytes but the last."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
