"""Runs the items that are missing, several at once, and writes data, page and Markdown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import write_whole
from qtide.core.processes import die_with_parent
from qtide.experiments.machine import described
from qtide.experiments.reproduction.candidates import chosen_steps
from qtide.experiments.reproduction.clustering_tables import (
    allocation,
    characteristics,
    leonardo,
    qluster,
)
from qtide.experiments.reproduction.malleability import overhead
from qtide.experiments.reproduction.result import PARTS, ItemResult, Workplace, keep
from qtide.experiments.reproduction.schedules import (
    LONG,
    SHARES,
    SHORT,
    granularity,
    multiplexing,
    sharing,
    splitting,
)

Tell = Callable[[str], object]
AT_ONCE = 5
"""Items at once: those that take long only wait, once their Slurms have started."""
DATA = "reproduction.json"


Make = Callable[[Workplace, str, float], ItemResult]


@dataclass(frozen=True)
class Item:
    """A published table or figure, and how it is made again."""

    make: Make
    quantum: float = 0.0
    after: str = ""
    """The item whose runs it uses."""
    minutes: float = 0.0
    """About how long it takes in quick mode; the longest begin first."""
    alone: bool = False
    """Whether it runs by itself, before the others: its clock is not scaled."""


ITEMS: dict[str, Item] = {
    "table-1": Item(qluster, LONG, minutes=8),
    "table-2": Item(qluster, SHORT, minutes=7),
    "table-3": Item(leonardo, LONG, minutes=8),
    "table-4": Item(leonardo, SHORT, minutes=7),
    "table-5": Item(characteristics, after="table-1"),
    "figure-1": Item(granularity),
    "figures-2-3": Item(multiplexing),
    SHARES: Item(sharing, minutes=2, alone=True),
    "figure-9": Item(allocation, after="table-1"),
    "heterogeneous-2-3": Item(splitting),
    "dmr-overhead": Item(overhead, minutes=1, alone=True),
    "quantum-candidates": Item(chosen_steps),
}
"""Every item by name."""


def item(name: str) -> Item:
    """Return an item; refuse an unknown name."""
    if name not in ITEMS:
        raise UsageError(f"there is no item {name!r}; there are: {', '.join(ITEMS)}")
    return ITEMS[name]


def reproduce(
    folder: Path, names: Sequence[str] = (), *, quick: bool = True, tell: Tell = lambda _: None
) -> list[ItemResult]:
    """Make the items that the folder lacks, all or those that are named; return all it has."""
    place = Workplace(folder.absolute(), quick)
    _check_mode(place)
    wanted = [name for name in ITEMS if not names or name in names]
    for name in names:
        item(name)  # rejects unknown names
    done = {name for name in ITEMS if (known := place.known(name)) and not known.missing}
    first = [name for name in wanted if name not in done and not ITEMS[name].after]
    for name in [name for name in first if ITEMS[name].alone]:
        first.remove(name)
        tell(_line(make(place, name)))
    first.sort(key=lambda name: -ITEMS[name].minutes)
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn"), die_with_parent) as pool:
        try:
            for each in as_completed([pool.submit(make, place, name) for name in first]):
                tell(_line(each.result()))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C: what has not begun does not begin
            raise
    for name in wanted:
        if ITEMS[name].after:  # takes no time, and depends on what is there now
            tell(_line(make(place, name)))
    return [found for name in ITEMS if (found := place.known(name)) is not None]


def make(place: Workplace, name: str) -> ItemResult:
    """Make one item and keep it; what cannot run here says so, and the others go on."""
    began = time.monotonic()
    try:
        found = ITEMS[name].make(place, name, ITEMS[name].quantum)
    except Exception as error:  # whatever it is, the others go on
        why = str(error) if isinstance(error, (QtideError, OSError)) else repr(error)
        found = ItemResult(name, name, "", missing=f"{why}; repeat the command to try again")
    found = replace(found, seconds=round(time.monotonic() - began, 1))
    keep(place.folder / PARTS, found)
    return found


def write(folder: Path, results: Sequence[ItemResult], *, quick: bool) -> dict[str, Any]:
    """Write the data, the page and the Markdown; return the data."""
    from qtide.experiments.reproduction.reproduction_page import markdown, write_page

    data: dict[str, Any] = {
        "made": described() | {"quick": quick},
        "items": [each.as_dict() for each in results],
    }
    text = json.dumps(data, indent=1, ensure_ascii=False)
    data = json.loads(text)
    write_whole(folder / DATA, f"{text}\n".encode())
    write_whole(folder / "reproduction.md", markdown(data).encode())
    write_page(folder, data)
    return data


def _check_mode(place: Workplace) -> None:
    """Refuse a folder in which the other mode was begun: their numbers do not go together."""
    file, mode = place.folder / "mode", "quick" if place.quick else "full"
    if file.exists() and file.read_text() != mode:
        raise UsageError(
            f"{place.folder} has a {file.read_text()} reproduction; choose another --name"
        )
    place.folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, mode.encode())


def _line(found: ItemResult) -> str:
    why = found.why if len(found.why) <= 160 else f"{found.why[:157]} …"
    return f"{found.name}: {found.verdict} ({found.seconds:.0f} s); {why}"
