"""qtide usage: QPU seconds by user, account, job or device; exports for other accounting."""

from __future__ import annotations

import csv
import pwd
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.service import DAY, Everybody, Url, client, clock, moment, show_rows

if TYPE_CHECKING:
    from qtide.backends.client.client import Client


class By(StrEnum):
    """Keys by which usage is summed."""

    USER = "user"
    ACCOUNT = "account"
    JOB = "job"
    DEVICE = "device"


class Export(StrEnum):
    """Formats of other accounting systems."""

    WALDUR = "waldur"
    XDMOD = "xdmod"


def usage(
    by: Annotated[
        list[By] | None, typer.Option(help="Sum up by this; may be repeated.  [default: user]")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Start: a date such as 2026-03-01, or days ago such as 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="End: a date, or days ago.")] = None,
    period: Annotated[
        str | None, typer.Option(help="A day, month or year (UTC), such as 2026-03.")
    ] = None,
    everybody: Everybody = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")] = False,
    export: Annotated[
        Export | None,
        typer.Option(help="Print it for Waldur's site agent, or for XDMoD's shredder."),
    ] = None,
    left: Annotated[
        bool,
        typer.Option("--left", help="Show what is left of your quota, your account's, and grants."),
    ] = False,
    sla: Annotated[
        bool, typer.Option("--sla", help="Show service levels, of 30 days unless --since is given.")
    ] = False,
    url: Url = None,
    json: shared_options.Json = False,
) -> None:
    """Show QPU seconds, including running tasks. `job` is Slurm's job number.

    Example: qtide usage --by account --by user --since 30d --csv

    For XDMoD: qtide usage --period 2026-03 --everybody --export xdmod

    What you may still use: qtide usage --left

    Availability, waits and promises kept: qtide usage --sla
    """
    if left or sla:
        others = (by, until, everybody, as_csv, export, period, left and since)
        _check_alone("--sla" if sla else "--left", *others)
        show = _show_levels if sla else _show_left
        show(client(url), since, json_wanted=json)
        return
    begin, end = _between(since, until, period)
    if export is not None:
        _check_alone(f"--export {export}", by, as_csv, json)
        _print_export(export, client(url), begin or 0.0, end or time.time(), everybody=everybody)
        return
    keys = [each.value for each in by or [By.USER]]
    terms = {"by": keys, "since": begin, "until": end, "everybody": everybody}
    rows = client(url).call("GET", "/v1/usage", terms)
    if json:
        as_json(rows)
    elif as_csv:
        _write_csv(keys, rows)
    else:
        show_rows([_usage_row(keys, row) for row in rows], "no QPU time was used in that period")


def _check_alone(option: str, *others: object) -> None:
    if any(others):
        shows = {"--sla": "service levels", "--left": "your own quotas"}.get(option, "one format")
        raise UsageError(f"{option} shows {shows}; give it without other options")


def _between(
    since: str | None, until: str | None, period: str | None
) -> tuple[float | None, float | None]:
    """The begin and the end of what to show; None for the first and for now."""
    if period is None:
        return moment(since), moment(until)
    if since or until:
        raise UsageError("--period names a begin and an end; give it without --since and --until")
    known = {4: "%Y", 7: "%Y-%m", 10: "%Y-%m-%d"}
    try:
        begin = datetime.strptime(period, known.get(len(period), "%Y")).replace(tzinfo=UTC)
    except ValueError:
        raise UsageError(
            f"a period is written as 2026, 2026-03 or 2026-03-01, not {period!r}"
        ) from None
    if len(period) == 4:
        end = begin.replace(year=begin.year + 1)
    elif len(period) == 7:
        end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    else:
        return begin.timestamp(), begin.timestamp() + DAY
    return begin.timestamp(), end.timestamp()


def _print_export(
    export: Export, caller: Client, since: float, until: float, *, everybody: bool
) -> None:
    terms = {"since": since, "until": until, "everybody": everybody}
    if export is Export.WALDUR:
        rows = caller.call("GET", "/v1/usage", terms | {"by": ["account", "user"]})
        lines = waldur_lines(rows)
    else:
        lines = xdmod_lines(_charges(caller, terms))
    for line in lines:
        say(line)


def _charges(caller: Client, terms: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What each task was charged, page by page."""
    after = 0
    while rows := caller.call("GET", "/v1/charges", terms | {"after": after}):
        yield from rows
        after = rows[-1]["number"]


def waldur_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines as of `sacct --format=Account,ReqTRES,Elapsed,User`, which Waldur's site agent reads.

    It multiplies a number by the minutes: one minute, and QPU milliseconds as the number.
    """
    carry = Carry()
    for row in rows:
        number = carry.whole(1000.0 * row["qpu_seconds"])
        yield f"{_field(row['account'])}|qpu={number}|00:01:00|{_field(row['user'])}"


def xdmod_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Lines as of sacct, with the fields that XDMoD's shredder wants: one job per task.

    XDMoD counts whole seconds: those of all lines together are right to the second.
    """
    carry = Carry()
    for row in rows:
        seconds, end = carry.whole(row["qpu_seconds"]), int(row["ended"])
        start = end - seconds
        times = (min(int(row["submitted"]), start), min(int(row["submitted"]), start), start, end)
        # what the site pays for a task stands beside it, as an element of an array of jobs
        paid_by_site = row["user"].startswith("(")
        number = f"{row['number']}_1" if paid_by_site else str(row["number"])
        uid, gid = _ids(row["user"])
        account, user, device = (_field(row[key]) for key in ("account", "user", "device"))
        fields = (
            *(number, str(row["number"]), device, device, "normal", account, account),
            *(str(gid), user, str(uid)),
            *(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(each)) for each in times),
            *(_elapsed(seconds), "0:0", ENDED.get(row["state"], "COMPLETED"), "1", "1", "1", "0"),
            *("gres/qpu=1", "gres/qpu=1,node=1", "UNLIMITED", device, _field(row["name"])),
        )
        yield "|".join(fields)


ENDED = {"done": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED"}
"""Slurm's names of how a task ended."""
NOBODY = 65_534


class Carry:
    """Rounds numbers one after the other so that their sum is right to half a unit."""

    def __init__(self) -> None:
        self._exact = 0.0
        self._said = 0

    def whole(self, number: float) -> int:
        """Round a number; what was rounded off before is made up for."""
        self._exact += number
        rounded = max(0, round(self._exact) - self._said)
        self._said += rounded
        return rounded


def _ids(user: str) -> tuple[int, int]:
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        return NOBODY, NOBODY
    return found.pw_uid, found.pw_gid


def _elapsed(seconds: int) -> str:
    days, rest = divmod(seconds, int(DAY))
    clock_time = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock_time}" if days else clock_time


def _field(text: str) -> str:
    """A name without what separates fields and lines."""
    return " ".join(text.replace("|", "/").split())


def _show_levels(caller: Client, since: str | None, *, json_wanted: bool) -> None:
    first = moment(since or "30d") or 0.0
    days = {"days": max(0.001, (time.time() - first) / DAY)}
    found = caller.call("GET", "/v1/levels", days)
    if json_wanted:
        as_json(found)
        return
    say(f"since {clock(found['since'])}, or since each device was first recorded:")
    show_rows([_level_row(row) for row in found["devices"]], "the service has no device")


def _level_row(row: dict[str, Any]) -> dict[str, Any]:
    wait, tasks, seconds = row["wait"], row["tasks"], row["seconds"]
    return {
        "device": row["device"],
        "available": _percent(row["availability"]),
        "busy": _percent(row["occupancy"]),
        "wait p50 s": None if wait["p50"] is None else f"{wait['p50']:.3g}",
        "p95 s": None if wait["p95"] is None else f"{wait['p95']:.3g}",
        "longest s": f"{wait['longest']:.3g}",
        "promises": tasks["promised"],
        "kept": _percent(row["promises_kept"]),
        "calibrated h": f"{seconds['calibration'] / 3600:.2f}",
        "drained h": f"{seconds['maintenance'] / 3600:.2f}",
        "tasks": tasks["done"] + tasks["failed"] + tasks["cancelled"],
    }


def _percent(part: float | None) -> str | None:
    return None if part is None else f"{100 * part:.2f}%"


def _show_left(caller: Client, _: str | None, *, json_wanted: bool) -> None:
    rows = caller.call("GET", "/v1/quotas")
    if json_wanted:
        as_json(rows)
        return
    show_rows([_left_row(row) for row in rows], "nothing is limited")


def _left_row(row: dict[str, Any]) -> dict[str, Any]:
    seconds = row["qpu_seconds_left"]
    counted = row["tasks"] is not None
    return {
        "quota of": f"{row['of']} {row['name']}",
        "device": row["device"] or "all",
        "period": row["period"],
        "tasks": row["tasks"],
        "tasks left": ("no limit" if counted else None)
        if row["tasks_left"] is None
        else row["tasks_left"],
        "qpu s": f"{row['qpu_seconds']:.3f}",
        "qpu s left": "no limit" if seconds is None else f"{seconds:.3f}",
        "until": clock(row["until"]),
    }


def _usage_row(keys: list[str], row: dict[str, Any]) -> dict[str, Any]:
    times = {"first": clock(row["first"]), "last": clock(row["last"])}
    numbers = {"tasks": row["tasks"], "running": row["running"]}
    return (
        {key: row[key] for key in keys}
        | numbers
        | {"qpu seconds": f"{row['qpu_seconds']:.3f}"}
        | times
    )


def _write_csv(keys: list[str], rows: list[dict[str, Any]]) -> None:
    columns = [*keys, "tasks", "running", "qpu_seconds", "first", "last"]
    writer = csv.DictWriter(sys.stdout, columns)
    writer.writeheader()
    writer.writerows(rows)
