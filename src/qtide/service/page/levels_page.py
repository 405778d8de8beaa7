"""The service levels as a page that a centre publishes: no sign-in, no scripts, no users."""

from __future__ import annotations

import time
from html import escape
from typing import Any

COLUMNS = (
    *("Device", "Availability", "Occupancy", "Wait, median", "Wait, 95 %", "Longest wait"),
    *("Promises kept", "Calibrated", "Drained", "Tasks"),
)


def levels_page(found: dict[str, Any], days: float, now: float) -> str:
    """Write the page from what `Figures.levels` returned."""
    heads = "".join(f'<th scope="col">{each}</th>' for each in COLUMNS)
    rows = "\n".join(_row(each) for each in found["devices"])
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Service levels</title>
<link rel="icon" href="page/icon.svg">
<link rel="stylesheet" href="page/page.css">
</head>
<body>
<main>
<section class="card">
<h1>Service levels, last {days:g} days</h1>
<div class="wide" role="region" aria-label="Service levels" tabindex="0"><table class="stacks">
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
<p class="muted small">Availability is the share of the time outside planned calibrations and
maintenance in which the device and the service were up. As of {made}.</p>
</section>
</main>
</body>
</html>
"""


def _row(level: dict[str, Any]) -> str:
    tasks = sum(level["tasks"][how] for how in ("done", "failed", "cancelled"))
    promises, wait = level["promises_kept"], level["wait"]
    longest = None if wait["p50"] is None else wait["longest"]
    cells = (
        _share(level["availability"]),
        _share(level["occupancy"]),
        *map(_duration, (wait["p50"], wait["p95"], longest)),
        "none given" if promises is None else _share(promises),
        _duration(level["seconds"]["calibration"]),
        _duration(level["seconds"]["maintenance"]),
        f"{tasks:,}",
    )
    name = escape(level["device"])
    parts = "".join(
        f'<td data-head="{head}">{each}</td>' for head, each in zip(COLUMNS[1:], cells, strict=True)
    )
    return f'<tr><th scope="row">{name}</th>{parts}</tr>'


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def _duration(seconds: float | None) -> str:
    """Print seconds in the unit that suits them."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.0005 else "0 s"
    for unit, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
