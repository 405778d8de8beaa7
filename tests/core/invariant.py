"""What must hold in every ledger, whatever the strategy: no node or device serves two at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from qtide.core.ledger import Cover, Covers, Interval, Stretch, covers, merge, outside, runs
from qtide.core.resources import NodeKind

UNLIMITED = NodeKind(cores=10**9, gpus=10**9)
"""For ledgers in which no task shares a node."""
Use = tuple[float, float, str]
"""Start, end and job."""


def check(
    intervals: Sequence[Interval],
    nodes: int,
    slots: int,
    *,
    slack: float = 1e-9,
    kind: NodeKind = UNLIMITED,
) -> list[str]:
    """One sentence for each violation; overlaps of up to `slack` seconds are tolerated."""
    found = covers(intervals)
    return [
        *_backward(intervals, slack),
        *_shared(found, slack),
        *_device_clashes(intervals, slack),
        *_used_unheld(found, slack),
        *_crowd(found, "node", nodes, slack),
        *_crowd(found, "vqpu", slots, slack),
        *_outside_run(found, slack),
        *_overfull(intervals, kind, slack),
    ]


def _backward(intervals: Sequence[Interval], slack: float) -> Iterable[str]:
    for each in intervals:
        if each.end < each.start - slack:
            yield f"{each.job} has {each.what} on {each.lane} end before it starts at {each.start}"


def _shared(found: Covers, slack: float) -> Iterable[str]:
    """Nodes and slots held by two jobs at once."""
    uses: defaultdict[str, list[Use]] = defaultdict(list)
    for (what, lane, job), cover in found.items():
        if what == "held":
            uses[lane] += [(start, end, job) for start, end in cover]
    for lane, held in uses.items():
        yield from (f"{lane} is held by {clash}" for clash in _clashes(held, slack))


def _device_clashes(intervals: Sequence[Interval], slack: float) -> Iterable[str]:
    """A device runs one payload at a time, so two of the same job clash too."""
    uses: defaultdict[str, list[Use]] = defaultdict(list)
    for each in intervals:
        if each.what == "busy" and each.lane.startswith("qpu/"):
            uses[each.lane].append((each.start, each.end, each.job))
    for lane, busy in uses.items():
        yield from (f"{lane} is busy with {clash}" for clash in _clashes(busy, slack))


def _clashes(uses: list[Use], slack: float) -> Iterable[str]:
    latest: Use | None = None
    for use in sorted(uses):
        if latest and min(latest[1], use[1]) - use[0] > slack:
            yield f"{latest[2]} and {use[2]} at once from {use[0]} to {min(latest[1], use[1])}"
        if latest is None or use[1] > latest[1]:
            latest = use


def _used_unheld(found: Covers, slack: float) -> Iterable[str]:
    for (what, lane, job), cover in found.items():
        if what in ("starting", "busy"):
            for start, end in _beyond(cover, _held(found, lane, job), slack):
                when = f"from {start} to {end}"
                yield f"{lane} is {what} for {job} {when} while {job} does not hold it"


def _held(found: Covers, lane: str, job: str) -> Cover:
    """When the job may use the lane: it holds the node or, for a device, any slot."""
    if not lane.startswith("qpu/"):
        return found.get(("held", lane, job), [])
    slots = [key for key in found if key[0] == "held" and key[2] == job]
    return merge(each for key in slots if key[1].startswith("vqpu/") for each in found[key])


def _crowd(found: Covers, kind: str, limit: int, slack: float) -> Iterable[str]:
    """Report the first moment at which more lanes of a kind are held than there are."""
    held: defaultdict[str, Cover] = defaultdict(list)
    for (what, lane, _), cover in found.items():
        if what == "held" and lane.startswith(f"{kind}/"):
            held[lane] += cover
    count = 0
    for moment, step in _steps((merge(cover) for cover in held.values()), slack):
        count += step
        if count > limit:
            yield f"{count} {kind} lanes are held at {moment}, but there are {limit}"
            return


def _steps(held: Iterable[Cover], slack: float) -> list[tuple[float, int]]:
    """Changes of the count in order of time; at the same moment, decreases come first."""
    stretches: list[Stretch] = [s for cover in held for s in cover if s[1] - s[0] > slack]
    ups = [(start + slack, 1) for start, _ in stretches]
    return sorted(ups + [(end, -1) for _, end in stretches])


def _outside_run(found: Covers, slack: float) -> Iterable[str]:
    lived = runs(found)
    for (what, lane, job), cover in found.items():
        if what == "held":
            for start, end in _beyond(cover, lived.get(job, []), slack):
                yield f"{lane} is held by {job} from {start} to {end} while {job} does not run"


def _overfull(intervals: Sequence[Interval], kind: NodeKind, slack: float) -> Iterable[str]:
    """Nodes whose tasks have more cores or GPUs at once than there are; a whole one has all."""
    changes: defaultdict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for each in intervals:
        if each.what == "busy" and each.lane.startswith("node/") and each.seconds > slack:
            cores, gpus = each.part or (kind.cores, kind.gpus)
            changes[each.lane] += [
                (each.start + slack, cores, gpus),
                (each.end, -cores, -gpus),
            ]
    for lane, found in changes.items():
        used_cores = used_gpus = 0
        for moment, cores, gpus in sorted(found):
            used_cores, used_gpus = used_cores + cores, used_gpus + gpus
            if used_cores > kind.cores or used_gpus > kind.gpus:
                yield f"{lane} has tasks with {used_cores} cores, {used_gpus} GPUs at {moment}"
                break


def _beyond(cover: Cover, limits: Cover, slack: float) -> Cover:
    return [each for each in outside(cover, limits) if each[1] - each[0] > slack]
