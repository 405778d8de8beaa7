"""qtide queue, devices and drain: commands that use the vQPU service."""

from __future__ import annotations

import json as json_text
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, print_rows, say

if TYPE_CHECKING:
    from qtide.backends.client.access import Access
    from qtide.backends.client.client import Client


Url = Annotated[
    str | None,
    typer.Option(
        envvar="QTIDE_URL",
        show_envvar=False,
        help="URL of the service (QTIDE_URL).  [default: the one you started]",
    ),
]
Everybody = Annotated[bool, typer.Option("--everybody", help="Include all users. For operators.")]
LONG = ("why", "takes", "name", "value", "of")
"""Columns that get their own lines where room is short."""
PATIENCE = 2.0
"""Seconds a command waits for an unreachable service."""


def client(url: str | None) -> Client:
    """Return a client of the service, with the token from the environment or the access file."""
    from qtide.backends.client.client import Client

    return Client(url, patience=PATIENCE)


def show_rows(rows: Sequence[dict[str, Any]], nothing: str) -> None:
    """Print rows as a table, or the sentence `nothing` if there are none."""
    if not rows:
        say(nothing)
        return
    print_rows(rows, LONG)


def clock(moment: float | None) -> str | None:
    """Format a time for people: the clock time if it is today, otherwise with the date."""
    if moment is None:
        return None
    then, now = time.localtime(moment), time.localtime(time.time())
    today = (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", then)


def devices(url: Url = None, json: shared_options.Json = False) -> None:
    """Show the devices with their state, policy and number of tasks.

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
        "why": device["reason"] or _next_maintenance(device),
        "policy": device["policy"],
        "waits": device["waiting"],
        "runs": device["running"],
        "size": most.get("qubits") or most.get("variables"),
        "takes": " ".join(each for each in formats if each != "burst") or None,
    }


def _next_maintenance(device: dict[str, Any]) -> str | None:
    """When the next planned maintenance begins; None if the service knows of none."""
    planned = device.get("maintenance")
    if not planned:
        return None
    start = datetime.fromtimestamp(planned[0]["start"]).astimezone()
    return f"maintenance from {start:%Y-%m-%d %H:%M}"


def queue(
    all_states: Annotated[bool, typer.Option("--all", help="Include finished tasks.")] = False,
    everybody: Everybody = False,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Show your tasks: their state, why they wait, when they should start.

    Example: qtide queue --everybody
    """
    states = () if all_states else ("queued", "running")
    tasks = [task.response for task in client(url).tasks(*states, everybody=everybody)]
    if json:
        as_json(tasks)
        return
    tasks.sort(key=_turn)
    show_rows([_queue_row(task) for task in tasks], "no task waits or runs")


def estimate(
    device: Annotated[str, typer.Argument(help="Name of the device.")],
    file: Annotated[Path, typer.Argument(help="OpenQASM (.qasm), QPY (.qpy) or a payload's JSON.")],
    shots: Annotated[int | None, typer.Option(min=1, help="Shots per circuit.")] = None,
    payload_format: Annotated[
        str | None, typer.Option("--format", help="Format of a JSON file: bqm, iqm or burst.")
    ] = None,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Show what a payload would take, what it leaves of your quota, and when it would start.

    Example: qtide estimate star circuit.qasm --shots 1000
    """
    found = client(url).estimate(_payload(file, payload_format), device, shots=shots)
    if json:
        as_json(found)
        return
    fixed, each = found["fixed_seconds"], found["seconds_per_shot"]
    parts = f"{fixed:.3g} s and {1e3 * each:.3g} ms per shot"
    guess = "" if found["known"] else " (a guess: no task like it has run yet)"
    say(f"{found['qpu_seconds']:.3g} QPU seconds: {parts}{guess}")
    for quota in found["left_afterwards"]:
        if quota["qpu_seconds_left"] is not None:
            left = f"{quota['qpu_seconds_left']:.3g} QPU seconds"
            when = {"day": "today", "month": "this month"}.get(quota["period"], "of the grant")
            say(f"left {when} for the {quota['of']} {quota['name']} afterwards: {left}")
    if found["likely_start"] is None:
        say(f"its start is unknown ({found['reason']})")
        return
    low, _, high = found["likely_start"]
    start, now = found["expected_start"], time.time()
    say(f"it would start in {max(0.0, start - now):.3g} s if nothing else is submitted")
    learnt = f"learnt from {found['based_on']} starts" if found["based_on"] else "assumed"
    say(
        f"9 of 10 start within {max(0.0, low - now):.3g} to {max(0.0, high - now):.3g} s ({learnt})"
    )


def _payload(file: Path, payload_format: str | None) -> Any:
    """Read a payload from a file; its ending names the format, unless that is given."""
    from qtide.backends.payloads.payload import Encoded

    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    if payload_format is not None:
        return Encoded(payload_format, data)
    if file.suffix == ".qpy":
        return Encoded("qpy", data)
    if file.suffix == ".qasm":
        return data.decode(errors="replace")
    raise UsageError(f"{file} ends neither in .qasm nor in .qpy; name its format with --format")


def why(
    task: Annotated[str, typer.Argument(help="The task's id, or its beginning.")],
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Show what stands before a task, which rule put it there, and what would change that.

    Example: qtide why 3f2a
    """
    found = client(url).call("GET", f"/v1/tasks/{quote(task, safe='')}/why")
    if json:
        as_json(found)
        return
    for sentence in found["sentences"]:
        say(sentence)


def _turn(task: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key of tasks: by device; running, then queued, then blocked by a quota."""
    blocked = task["state"] == "queued" and task.get("position") is None
    return task["device"], blocked, task.get("position") or 0, task["submitted"]


def _queue_row(task: dict[str, Any]) -> dict[str, Any]:
    waiting = task["ended"] is None
    return {
        "task": task["id"][:8],
        "device": task["device"],
        "user": task["user"],
        "account": task["account"] or None,
        "job": task["job"],
        "state": task["state"],
        "place": task.get("position"),
        "why": task.get("reason") or task["error"],
        "start": clock(task.get("expected_start") if waiting else task["started"]),
        "end": clock(task.get("expected_end") if waiting else task["ended"]),
        "qpu s": f"{task['expected_seconds'] if waiting else task['qpu_seconds']:.3g}",
    }


def drain(
    device: Annotated[str, typer.Argument(help="Name of the device.")],
    reason: Annotated[
        str | None, typer.Option(help="Reason shown to users.  [default: maintenance]")
    ] = None,
    licences: Annotated[
        bool, typer.Option("--licences", help="Make Slurm grant fewer licences meanwhile.")
    ] = False,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Stop starting tasks on a device: running ones end, others wait. For operators.

    Example: qtide drain star --reason "cooling, back at 14:00"

    To resume it: qtide resume --device star
    """
    path = f"/v1/devices/{quote(device, safe='')}/drain"
    said = client(url).call("POST", path, form={"reason": reason, "licences": licences})
    if json:
        as_json(said)
    else:
        now = said["state"]
        words = "is drained" if now == "maintenance" else f"is {now}, and starts no more tasks"
        say(f"{device} {words}; tasks that wait: {said['waiting']}")


def resume_device(device: str, url: str | None, *, json_wanted: bool) -> None:
    """Resume a drained device."""
    said = client(url).call("POST", f"/v1/devices/{quote(device, safe='')}/resume")
    if json_wanted:
        as_json(said)
    else:
        say(f"{device} is {said['state']}; tasks that wait: {said['waiting']}")


DAY = 86_400.0


def moment(text: str | None) -> float | None:
    """Parse a date, or a number of days before now, to a point in time."""
    if text is None:
        return None
    if text.endswith("d") and text[:-1].replace(".", "", 1).isdecimal():
        return time.time() - DAY * float(text[:-1])
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise UsageError(
            f"{text!r} is neither a date such as 2026-03-01 nor a number of days such as 7d"
        ) from None


def page(
    browser: Annotated[
        bool, typer.Option(help="Open it in a browser, if there is one here.")
    ] = True,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Open the service's page, signed in as you, by a link that works once within 5 minutes.

    Example: qtide page --no-browser
    """
    caller = client(url)
    link = _for_browsers(caller.access) + caller.call("POST", "/v1/links")["path"]
    if json:
        as_json({"url": link})
        return
    say(link)
    if browser:
        open_in_browser(link)


def _for_browsers(access: Access) -> str:
    """The URL of a service that a browser can open; beside its Unix socket, a file has it."""
    from qtide.backends.client.access import FILE, UNIX

    if access.socket is None or not access.url.startswith(UNIX):
        return access.url
    try:
        return str(json_text.loads((access.socket.parent / FILE).read_text())["url"])
    except (OSError, ValueError, KeyError):
        raise UsageError(
            f"a browser cannot open {access.url}; name the port: --url http://127.0.0.1:8037"
        ) from None


def open_in_browser(link: str) -> None:
    """Open a link in a browser, if a person with a display gave the command."""
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if shown and sys.stdout.isatty():
        import webbrowser  # few commands need it

        webbrowser.open(link)
