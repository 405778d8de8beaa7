"""qtide allocations: QPU seconds for an account or a user, per day, per month or as a grant."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.service import Everybody, Url, client, show_rows

allocations = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Limit the QPU seconds that accounts and users may use in a period.",
)


class Every(StrEnum):
    """Periods that repeat."""

    DAY = "day"
    MONTH = "month"


@allocations.command("add", cls=PlainCommand)
def add(
    seconds: Annotated[float, typer.Argument(min=0.001, help="QPU seconds.")],
    account: Annotated[str, typer.Option(help="For this account.")] = "",
    user: Annotated[str, typer.Option(help="For this user; with --account, in that account.")] = "",
    device: Annotated[str, typer.Option(help="On this device.  [default: on all together]")] = "",
    every: Annotated[Every | None, typer.Option(help="For each day or month (UTC).")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="A grant: from this date, such as 2026-10-01, on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="A grant: until the end of this date.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Shown with it, such as a project's number.")] = "",
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Allocate QPU seconds; a task that needs more than is left is refused. For operators.

    Example: qtide allocations add 36000 --account physics --every month

    A grant: qtide allocations add 900 --user ada --from 2026-10-01 --to 2027-03-31
    """
    if [start is None, end is None] != [every is not None] * 2:
        raise UsageError("name a period: --every day, --every month, or --from and --to")
    form: dict[str, Any] = {"account": account, "user": user, "device": device, "reason": reason}
    form |= {"period": "grant" if every is None else str(every), "seconds": seconds}
    if start is not None and end is not None:
        form |= {"start": day(start), "end": day(end) + 86_400.0}
    said = client(url).call("POST", "/v1/allocations", form=form)
    if json:
        as_json(said)
    else:
        say(f"allocation {said['number']}: {said['left']:.3f} of {said['seconds']:g} s are left")


@allocations.command("list", cls=PlainCommand)
def list_allocations(
    everybody: Everybody = False, url: Url = None, json: shared_options.Json = False
) -> None:
    """Show the allocations that limit you now, and what is left of each.

    Example: qtide allocations list --everybody
    """
    found = client(url).call("GET", "/v1/allocations", {"everybody": everybody})
    if json:
        as_json(found)
    else:
        nothing = "there are no allocations" if everybody else "no allocation limits you"
        hint = "" if everybody else "; operators see everybody's with --everybody"
        show_rows([_row(each) for each in found], nothing + hint)


@allocations.command("remove", cls=PlainCommand)
def remove(
    number: Annotated[int, typer.Argument(help="Its number, as `qtide allocations list` shows.")],
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Remove an allocation, which then limits nobody. For operators.

    Example: qtide allocations remove 3
    """
    client(url).call("DELETE", f"/v1/allocations/{number}")
    if json:
        as_json({"number": number, "removed": True})
    else:
        say(f"allocation {number} is removed")


def day(text: str) -> float:
    """The begin of a date (UTC), in seconds since 1970."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise UsageError(f"a date is written as 2026-10-01, not {text!r}") from None


def _row(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "number": each["number"],
        "account": each["account"],
        "user": each["user"],
        "device": each["device"],
        "period": each["period"],
        "until": f"{datetime.fromtimestamp(each['until'], UTC):%Y-%m-%d}",
        "seconds": f"{each['seconds']:g}",
        "used": f"{each['used']:.3f}",
        "left": f"{each['left']:.3f}",
        "why": each["reason"] or None,
    }
