"""Lanes: which rows a timeline has, and which stretches are on each. No drawing here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from qtide.ledger.cover import Cover, Covers, covers, merge, outside
from qtide.ledger.ledger import Interval, What

LONGEST = 22
"""The most characters in a label."""
MOST_NODES, MOST_SLOTS, MOST_STRIPS = 24, 8, 8
"""The most rows for nodes, QPU slots and waiting jobs; beyond that, they share this height."""
APART = 0.45
"""The space between nodes, QPU and queue, in rows."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Stretches of one job that look the same, drawn from `top` to `bottom` of a lane."""

    job: str
    what: What
    cover: Cover
    top: float = 0.0
    bottom: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A labelled row; `space` is left free above it. Sizes are in rows."""

    label: str
    bars: tuple[Bars, ...]
    height: float = 1.0
    space: float = 0.0


def lanes(intervals: Iterable[Interval]) -> list[Lane]:
    """The nodes by name, below them the QPU, below it the queued requests."""
    found = covers(intervals)
    jobs = list(dict.fromkeys(job for _, _, job in found))
    return [*_nodes(found, jobs), *_qpu(found, jobs), *_queue(found)]


def natural(text: str) -> list[str | int]:
    """A sort key that puts node10 after node9."""
    parts = re.split(r"([0-9]+)", text)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def clean(label: str) -> str:
    """The label as drawn: printable and not too long."""
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in label)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _nodes(found: Covers, jobs: list[str]) -> list[Lane]:
    names = _names(found, "node/")
    height = min(1.0, MOST_NODES / max(1, len(names)))
    return [Lane(clean(name), _bars(found, jobs, f"node/{name}"), height) for name in names]


def _qpu(found: Covers, jobs: list[str]) -> list[Lane]:
    """One lane if there is one slot; otherwise the slots first, then the devices."""
    slots, devices = _names(found, "vqpu/"), _names(found, "qpu/")
    if len(slots) <= 1 and len(devices) <= 1:
        parts = [*(f"vqpu/{name}" for name in slots), *(f"qpu/{name}" for name in devices)]
        bars = tuple(each for part in parts for each in _bars(found, jobs, part))
        return _apart([Lane("QPU", bars)] if bars else [])
    height = min(1.0, MOST_SLOTS / max(1, len(slots)))
    held = [Lane(clean(f"vQPU {n}"), _bars(found, jobs, f"vqpu/{n}"), height) for n in slots]
    label = "QPU {}" if len(devices) > 1 else "QPU"
    busy = [Lane(clean(label.format(n)), _bars(found, jobs, f"qpu/{n}")) for n in devices]
    return _apart([*held, *busy])


def _queue(found: Covers) -> list[Lane]:
    """One lane with a strip for each waiting job, since their waits overlap."""
    waits: dict[str, Cover] = {}
    for (what, _, job), cover in found.items():
        if what == "wait" and cover:
            waits[job] = merge([*waits.get(job, []), *cover])
    size = 1 / max(1, len(waits))
    bars = tuple(
        Bars(job, "wait", waits[job], index * size, (index + 1) * size)
        for index, job in enumerate(sorted(waits, key=natural))
    )
    height = max(1.0, 0.7 * min(len(waits), MOST_STRIPS))
    return _apart([Lane("queue", bars, height)] if bars else [])


def _names(found: Covers, kind: str) -> list[str]:
    names = {lane.removeprefix(kind) for _, lane, _ in found if lane.startswith(kind)}
    return sorted(names, key=natural)


def _bars(found: Covers, jobs: Iterable[str], lane: str) -> tuple[Bars, ...]:
    """Busy stretches are drawn over held ones; while a node is starting, it is not busy."""
    whats: tuple[What, ...] = ("held", "starting", "busy")
    drawn = (Bars(job, what, _cover(found, what, lane, job)) for what in whats for job in jobs)
    return tuple(each for each in drawn if each.cover)


def _cover(found: Covers, what: What, lane: str, job: str) -> Cover:
    cover = found.get((what, lane, job), [])
    return outside(cover, found.get(("starting", lane, job), [])) if what == "busy" else cover


def _apart(group: list[Lane]) -> list[Lane]:
    return [Lane(g.label, g.bars, g.height, 0.0 if i else APART) for i, g in enumerate(group)]
