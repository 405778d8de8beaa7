"""qtide usage: who used how many QPU seconds, and when."""

from __future__ import annotations

import csv
import sys
import time
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from qtide.cli import options
from qtide.cli.console import as_json
from qtide.cli.service import Everybody, Url, client, clock, show_rows
from qtide.errors import UsageError

DAY = 86_400.0


class By(StrEnum):
    """What usage is summed up by."""

    USER = "user"
    ACCOUNT = "account"
    JOB = "job"
    DEVICE = "device"


def usage(
    by: Annotated[list[By] | None, typer.Option(help="What to sum up by; may be repeated.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From a date such as 2026-03-01, or days ago such as 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Up to a date, or days ago.")] = None,
    everybody: Everybody = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")] = False,
    left: Annotated[
        bool, typer.Option("--left", help="What is left of your quota, and of your account's.")
    ] = False,
    url: Url = None,
    json: options.Json = False,
) -> None:
    """Show QPU seconds, including running tasks. `job` is Slurm's job number.

    Example: qtide usage --by account --by user --since 30d --csv

    What you may still use today: qtide usage --left
    """
    if left:
        _check_alone(by, since, until, everybody, as_csv)
        _show_left(client(url).call("GET", "/v1/quotas"), json_wanted=json)
        return
    keys = [each.value for each in by or [By.USER]]
    terms = {"by": keys, "since": moment(since), "until": moment(until), "everybody": everybody}
    rows = client(url).call("GET", "/v1/usage", terms)
    if json:
        as_json(rows)
    elif as_csv:
        _write_csv(keys, rows)
    else:
        show_rows([_row(keys, row) for row in rows], "nothing was used in that time")


def moment(text: str | None) -> float | None:
    """A point in time from a date, or from a number of days before now."""
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


def _check_alone(*others: object) -> None:
    if any(others):
        raise UsageError("--left shows your own quotas of today; give it without other options")


def _show_left(rows: list[dict[str, Any]], *, json_wanted: bool) -> None:
    if json_wanted:
        as_json(rows)
        return
    show_rows([_left_row(row) for row in rows], "nothing is limited")


def _left_row(row: dict[str, Any]) -> dict[str, Any]:
    seconds = row["qpu_seconds_left"]
    return {
        "quota of": f"{row['of']} {row['name']}",
        "tasks": row["tasks"],
        "tasks left": "no limit" if row["tasks_left"] is None else row["tasks_left"],
        "qpu s today": f"{row['qpu_seconds']:.3f}",
        "qpu s left": "no limit" if seconds is None else f"{seconds:.3f}",
        "until": clock(row["until"]),
    }


def _row(keys: list[str], row: dict[str, Any]) -> dict[str, Any]:
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
