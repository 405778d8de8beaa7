"""Whether a payload fits a device; if not, the refusal says which `--qpu` would take it."""

from __future__ import annotations

from typing import Any

from qtide.devices.device import Device
from qtide.devices.kinds import needed_packages, takers
from qtide.payloads.encoded import encode, format_of
from qtide.payloads.payload import PayloadRefused

CIRCUITS = ("iqm", "qasm3", "qpy")


def check(device: Device, payload: Any, shots: int | None) -> None:
    """Raise PayloadRefused if the device cannot take the payload, with what to do about it."""
    try:
        with needed_packages(device):
            device.check(payload)
        if shots is not None:
            device.check_shots(shots)
        if not device.light:  # it is sent to a worker; in virtual time the same rules apply
            encode(payload)
    except PayloadRefused as error:
        raise PayloadRefused(f"{error}{_remedy(device, payload)}") from None


def _remedy(device: Device, payload: Any) -> str:
    """What to do with a payload of another format; with one that has the right format, or none."""
    name = format_of(payload)
    if name is None:
        return ""
    if name not in device.properties()["formats"]:
        return takers(name)
    return "; a parameter `target` of the program says what fits" if name in CIRCUITS else ""
