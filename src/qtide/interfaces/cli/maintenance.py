"""qtide maintenance: when a device starts no tasks, entered once and known to everybody."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.service import Url, client, show_rows

maintenance = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Plan when a device starts no tasks; promises, expected starts and Slurm allow for it.",
)

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LENGTH = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")


@maintenance.command("add", cls=PlainCommand)
def add(
    device: Annotated[str, typer.Argument(help="Name of the device.")],
    start: Annotated[
        str, typer.Argument(help="Start: 2026-11-20T08:00, in this machine's time, or `now`.")
    ],
    lasts: Annotated[str, typer.Option("--for", help="How long, such as 90m, 2h or 1d12h.")],
    reason: Annotated[
        str | None, typer.Option(help="Reason shown to users.  [default: maintenance]")
    ] = None,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Plan maintenance: tasks that run end, and none starts until it is over. For operators.

    Example: qtide maintenance add star 2026-11-20T08:00 --for 2h
    """
    begins = moment(start)
    form = {"device": device, "start": begins, "end": begins + seconds(lasts), "reason": reason}
    said = client(url).call("POST", "/v1/maintenance", form=form)
    if json:
        as_json(said)
        return
    say(f"maintenance {said['number']} of {device}: {_time(said['start'])} to {_time(said['end'])}")
    if said["broken_promises"]:
        say(
            f"{said['broken_promises']} waiting tasks were promised to start then; they start later"
        )


@maintenance.command("list", cls=PlainCommand)
def list_planned(url: Url = None, json: shared_options.Json = False) -> None:
    """Show what is planned, or under way.

    Example: qtide maintenance list
    """
    found = client(url).call("GET", "/v1/maintenance")
    if json:
        as_json(found)
    else:
        show_rows([_row(each) for each in found], "no maintenance is planned")


@maintenance.command("remove", cls=PlainCommand)
def remove(
    number: Annotated[int, typer.Argument(help="Its number, as `qtide maintenance list` shows.")],
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Cancel planned maintenance, or end it early. For operators.

    Example: qtide maintenance remove 3
    """
    client(url).call("DELETE", f"/v1/maintenance/{number}")
    if json:
        as_json({"number": number, "removed": True})
    else:
        say(f"maintenance {number} is cancelled")


def moment(text: str) -> float:
    """Seconds since 1970 of a local time, or of one that names its time zone."""
    if text == "now":
        return datetime.now(UTC).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(f"a time is written as 2026-11-20T08:00, not {text!r}") from None


def seconds(text: str) -> float:
    """Seconds of a length such as 1d12h."""
    if not LENGTH.fullmatch(text):
        raise UsageError(f"a length is written as 90m, 2h or 1d12h, not {text!r}")
    return sum(float(part[:-1]) * UNITS[part[-1]] for part in re.findall(r"[\d.]+[smhd]", text))


def _row(planned: dict[str, Any]) -> dict[str, Any]:
    return {
        "number": planned["number"],
        "device": planned["device"],
        "from": _time(planned["start"]),
        "to": _time(planned["end"]),
        "reason": planned["reason"],
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")
