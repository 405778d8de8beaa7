"""qtide devices: the devices of the vQPU service and their states."""

from __future__ import annotations

from typing import Any

from qtide.cli import options
from qtide.cli.console import as_json
from qtide.cli.service import Url, client, show_rows


def devices(url: Url = None, json: options.Json = False) -> None:
    """Show the devices: state, policy, number of waiting tasks.

    Example: qtide devices --json
    """
    found = client(url).devices()
    if json:
        as_json(found)
        return
    show_rows([_row(device) for device in found], "the service has no device")


def _row(device: dict[str, Any]) -> dict[str, Any]:
    most = device["properties"].get("most", {})
    formats = device["properties"].get("formats", ())
    return {
        "device": device["name"],
        "kind": device["kind"],
        "state": device["state"],
        "why": device["reason"],
        "policy": device["policy"],
        "waits": device["waiting"],
        "runs": device["running"],
        "size": most.get("qubits") or most.get("variables"),
        "takes": " ".join(each for each in formats if each != "burst") or None,
    }
