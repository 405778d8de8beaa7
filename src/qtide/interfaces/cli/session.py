"""qtide session: hold a device for a while, for a program that needs it again and again."""

from __future__ import annotations

import os
import subprocess
from typing import Annotated

import typer

from qtide.core.errors import QtideError, UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.service import Url, client

NOT_FOUND = 127


def session(
    device: Annotated[str, typer.Argument(help="Name of the device.")],
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run while the device is held.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.001, help="Longest time to hold it.")] = 60.0,
    idle: Annotated[
        float, typer.Option(min=0.001, help="Longest time to hold it without a task on it.")
    ] = 5.0,
    max_wait: Annotated[
        float | None, typer.Option(help="Seconds within which it has to begin, or be refused.")
    ] = None,
    priority: Annotated[int, typer.Option(help="Priority, if the policy heeds it.")] = 0,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Hold a device while a command runs, so that its tasks start at once; or until the idle limit.

    Example: qtide session star --seconds 120 -- python loop.py

    Tasks that the command submits to the device belong to the session (QTIDE_SESSION).
    """
    from qtide.backends.client.access import DEVICE
    from qtide.backends.client.client import SESSION

    found = client(url).session(device, seconds, idle=idle, max_wait=max_wait, priority=priority)
    try:
        found.begun()
    except BaseException:
        found.close()  # nobody waits for it any more
        raise
    if not command:
        as_json(found.response) if json else say(
            f"{SESSION}={found.id} {DEVICE}={device}; close it: qtide cancel {found.id[:8]}"
        )
        return
    try:
        words = os.environ | {SESSION: found.id, DEVICE: device}
        done = subprocess.run(command, env=words, check=False)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from None
    finally:
        found.close()
    held = found.result(30.0)["held"]
    if json:
        as_json(found.response)
    else:
        say(f"held {device} for {held:.3g} s; {found.response['qpu_seconds']:.3g} s between tasks")
    if done.returncode:
        raise QtideError(f"{command[0]} ended with code {done.returncode}")
