"""The kinds of devices, by the names that configuration files use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from types import UnionType
from typing import Any, get_args, get_origin

from qtide.devices.device import Device
from qtide.errors import PhaseError, QtideError, UsageError
from qtide.plugins import Plugins

DEVICES: Plugins[Callable[..., Device]] = Plugins("qtide.devices", "kind of device")


def make(kind: str, options: dict[str, Any]) -> Device:
    """A device of that kind; raises UsageError for unknown kinds and for wrong options."""
    maker = DEVICES.load(kind)
    _check_options(kind, maker, options)
    return maker(**options)


def _check_options(kind: str, maker: Callable[..., Device], options: dict[str, Any]) -> None:
    what = f"a device of kind {kind!r}"
    known = signature(maker, eval_str=True).parameters
    for name, value in options.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"{what} has no option {name!r}; it has: {names}")
        if not _fits(value, known[name].annotation):
            raise UsageError(f"{what} cannot have {name} = {value!r}")
    for name, option in known.items():
        if option.default is option.empty and name not in options:
            raise UsageError(f"{what} needs the option {name!r}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether the value has the type; the device itself checks the entries of lists."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int) and float in kinds:
        return True
    return any(isinstance(value, get_origin(kind) or kind) for kind in kinds)


@contextmanager
def needed_packages(device: Device) -> Iterator[None]:
    """If a package that the device needs is missing, say how to install it."""
    try:
        yield
    except ImportError as error:
        install = f"; pip install 'qtide[{device.extra}]'" if device.extra else ""
        raise UsageError(f"the {device.name} needs a package: {error}{install}") from None


def takers(format: str) -> str:  # noqa: A002 - as everywhere
    """Which `--qpu` takes payloads of this format, as the end of a sentence; empty if none does."""
    kinds = [kind for kind in DEVICES.names() if format in _formats(kind)]
    names = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if kinds[1:] else kinds)
    return f"; --qpu {names} takes it" if kinds else ""


def _formats(kind: str) -> list[str]:
    """What a kind takes by itself; nothing if it needs options, or a server that says so."""
    try:
        formats: list[str] = make(kind, {}).properties()["formats"]
    except (QtideError, PhaseError):
        return []
    return formats
