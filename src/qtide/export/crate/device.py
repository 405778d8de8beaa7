"""The devices of a run, as they describe themselves: name, kind and properties."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qtide.client.client import Client
from qtide.devices.choice import choice
from qtide.errors import QtideError
from qtide.programs.journal import records
from qtide.programs.target import KEY
from qtide.runs.folder import RunFolder

PATIENCE = 2.0
"""Seconds that a service may take to answer."""


def described(run: RunFolder, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What is known of each device: from the journal, from the service, or from the device."""
    found = {name: {"name": name, "kind": name, "properties": {}} for name in names}
    for each in _known(run):
        if each["name"] in found:
            found[each["name"]] = each
    return found


def _known(run: RunFolder) -> list[dict[str, Any]]:
    """The device that the run's program was told of comes last: that is how it was then."""
    target = records(run.journal).get(KEY)
    then = [] if target is None else [target.outcome]
    try:
        return [*_now(run.spec.qpu), *then]
    except QtideError:  # the service is gone, or the device's package
        return then


def _now(qpu: str) -> list[dict[str, Any]]:
    if "://" in qpu:
        root = "/".join(qpu.split("/")[:3])
        return Client(root, patience=PATIENCE).devices()
    chosen = choice(qpu)
    device, timing = chosen.device, chosen.profile
    times = {"payload_s": timing.payload_s, "shot_s": timing.shot_s, "timing": timing.name}
    properties = device.properties() | times | {"emulated": True}
    return [{"name": device.name, "kind": chosen.kind, "properties": properties}]
