"""qtide cancel: end a run, wherever its driver is."""

from __future__ import annotations

import time

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.errors import QtideError, UsageError
from qtide.runs.folder import RunFolder
from qtide.runs.presence import where

LIMIT = 60.0
"""Seconds within which a driver has to give everything back."""


def cancel(
    run: options.Run,
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Cancel a run from any host that sees its folder; it can be resumed.

    Example: qtide cancel last
    """
    folder = RunFolder.find(runs, run)
    if folder.state != "running":
        raise UsageError(f"{folder.name} is not running; it is {folder.state}")
    folder.presence.request_cancel()
    limit = time.monotonic() + LIMIT
    while folder.state == "running":
        if time.monotonic() > limit:
            driver = folder.presence.driver
            place = f" ({where(driver)})" if driver else ""
            raise QtideError(f"the driver of {folder.name}{place} did not end in {LIMIT:g} s")
        time.sleep(0.1)
    if json:
        as_json({"run": folder.name, "state": folder.state})
    else:
        out.print(f"{folder.name} is {folder.state}; continue with: qtide resume {folder.name}")
