"""Metrics for comparing strategies, computed only from intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from qtide.core.ledger import (
    Cover,
    Covers,
    Interval,
    Note,
    What,
    covers,
    merge,
    outside,
    runs,
    seconds,
)


@dataclass(frozen=True, slots=True)
class JobTime:
    """When a job ran; `wall` excludes the time between a dead driver and its successor."""

    job: str
    start: float
    end: float
    wall: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Resources used by jobs that ran together, in seconds and node-seconds."""

    jobs: tuple[JobTime, ...] = ()
    total: float = 0.0
    nodes_held: float = 0.0
    nodes_busy: float = 0.0
    qpu_busy: float = 0.0
    qpu_occupancy: float = 0.0
    slots_held: float = 0.0
    quantum: float = 0.0
    queue_nodes: float = 0.0
    queue_qpu: float = 0.0
    nodes_starting: float = 0.0
    cores_held: float = 0.0
    """Core-seconds of the nodes held, as far as the ledger knows what its nodes have."""
    cores_busy: float = 0.0
    """Core-seconds that tasks had; a task that shares no node has all of its cores."""
    gpus_held: float = 0.0
    gpus_busy: float = 0.0
    billing_held: float = 0.0
    """What the site charges for the nodes held, by its billing weights; 0 if they are unknown."""
    billing_busy: float = 0.0
    """What of it was charged for what tasks had while they ran."""
    node_rate: float = 0.0
    """What the site charges for each second of a whole node of the usual kind; 0 if unknown."""
    divided: bool = False
    """Whether tasks shared nodes, or nodes differed: then node-seconds do not tell everything."""
    open_ended: int = 0
    """Number of spans with an unknown end; if any, the figures are lower bounds."""

    @property
    def queue(self) -> float:
        """Seconds that requests spent in queues."""
        return self.queue_nodes + self.queue_qpu

    @property
    def mean_wall(self) -> float:
        """Mean wall time of a job."""
        return _ratio(sum(each.wall for each in self.jobs), len(self.jobs))

    @property
    def charged(self) -> float:
        """Node-seconds held; if the site has billing weights, as many as cost what it charges."""
        return self.billing_held / self.node_rate if self.node_rate else self.nodes_held

    @property
    def efficiency(self) -> float:
        """Fraction of the held node-seconds in which the nodes worked."""
        return _ratio(self.nodes_busy, self.nodes_held)

    @property
    def core_efficiency(self) -> float:
        """Fraction of the held core-seconds that tasks had."""
        return _ratio(self.cores_busy, self.cores_held)

    def as_dict(self) -> dict[str, Any]:
        """All figures, including derived ones, ready for JSON."""
        derived = {name: getattr(self, name) for name in ("queue", "mean_wall", "efficiency")}
        by_job = [asdict(each) for each in self.jobs]
        return asdict(self) | {"jobs": len(by_job), "by_job": by_job} | derived


@dataclass(frozen=True, slots=True)
class Panel:
    """The jobs of one strategy: their names in order, their ledgers, and their metrics."""

    strategy: str
    jobs: tuple[str, ...]
    intervals: Sequence[Interval]
    metrics: Metrics
    notes: Sequence[Note] = ()


def measure(intervals: Iterable[Interval]) -> Metrics:
    """Compute the metrics of jobs that ran together."""
    intervals = list(intervals)
    found = covers(intervals)
    jobs = tuple(_job_time(job, cover) for job, cover in runs(found).items() if cover)
    total = max(each.end for each in jobs) - min(each.start for each in jobs) if jobs else 0.0
    devices = _devices(found)
    qpu_busy = sum(map(seconds, devices))
    return Metrics(
        jobs=jobs,
        total=total,
        nodes_held=_sum(found, "held", lambda lane: lane.startswith("node/")),
        nodes_busy=sum(map(seconds, _at_work(found))),
        qpu_busy=qpu_busy,
        qpu_occupancy=_ratio(qpu_busy, total * len(devices)),
        slots_held=_sum(found, "held", lambda lane: lane.startswith("vqpu/")),
        quantum=_sum(found, "phase", lambda lane: lane == "quantum"),
        queue_nodes=_sum(found, "wait", lambda lane: lane == "nodes"),
        queue_qpu=_sum(found, "wait", lambda lane: lane == "qpu"),
        nodes_starting=_sum(found, "starting", lambda lane: lane.startswith("node/")),
        **_by_cores(intervals),
        node_rate=max((each.rate for each in intervals if each.what == "run"), default=0.0),
        open_ended=sum(each.open_ended for each in intervals),
    )


def _by_cores(intervals: Sequence[Interval]) -> dict[str, Any]:
    """Core-seconds, GPU-seconds and billing-seconds, held and busy."""
    nodes = [each for each in intervals if each.lane.startswith("node/")]
    sizes = {each.lane: each.part for each in nodes if each.what == "held" and each.part}
    units = ("cores", "gpus", "billing")
    sums = {f"{unit}_{what}": 0.0 for unit in units for what in ("held", "busy")}
    divided = len(set(sizes.values())) > 1 or any("#" in lane for lane in sizes)
    for each in nodes:
        part = each.part or sizes.get(each.lane)
        if each.what in ("held", "busy") and part is not None:
            sums[f"cores_{each.what}"] += part[0] * each.seconds
            sums[f"gpus_{each.what}"] += part[1] * each.seconds
            sums[f"billing_{each.what}"] += each.rate * each.seconds
            divided = divided or (each.what == "busy" and each.part is not None)
    return {**sums, "divided": divided}


def _job_time(job: str, cover: Cover) -> JobTime:
    return JobTime(job, cover[0][0], cover[-1][1], seconds(cover))


def _at_work(found: Covers) -> list[Cover]:
    """When each node worked; time in which a task loads modules does not count."""
    return [
        outside(cover, found.get(("starting", lane, job), []))
        for (what, lane, job), cover in found.items()
        if what == "busy" and lane.startswith("node/")
    ]


def _devices(found: Covers) -> list[Cover]:
    """When each QPU device worked, for any job."""
    busy: dict[str, Cover] = {}
    for (what, lane, _), cover in found.items():
        if what == "busy" and lane.startswith("qpu/"):
            busy[lane] = merge([*busy.get(lane, []), *cover])
    return list(busy.values())


def _sum(found: Covers, what: What, lane: Callable[[str], bool]) -> float:
    return sum(seconds(cover) for key, cover in found.items() if key[0] == what and lane(key[1]))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
