"""The kinds of devices, by the names that configuration files use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from qtide.errors import UsageError
from qtide.qpus.devices.device import Device

_PLACES = {
    "annealer": ("annealer", "Annealer"),
    "atoms": ("atoms", "Atoms"),
    "burst": ("bursts", "Bursts"),
    "gate": ("gate", "gate"),
    "iqm": ("iqm", "IqmServer"),
    "star": ("gate", "star"),
}


def make(kind: str, options: dict[str, Any]) -> Device:
    """A device of that kind; raises UsageError for what does not exist or does not fit."""
    if kind not in _PLACES:
        known = ", ".join(sorted(_PLACES))
        raise UsageError(f"there is no kind of device {kind!r}; there are: {known}")
    module, name = _PLACES[kind]
    maker = getattr(import_module(f"qtide.qpus.devices.{module}"), name)
    _check_options(kind, maker, options)
    device: Device = maker(**options)
    return device


def _check_options(kind: str, maker: Callable[..., Device], options: dict[str, Any]) -> None:
    known = signature(maker).parameters
    for name in options:
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"a device of kind {kind!r} has no option {name!r}; it has: {names}")
