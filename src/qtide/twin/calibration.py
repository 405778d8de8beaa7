"""Calibration: the parameters of a site, fitted to the ledgers of real runs.

All seconds are those of the runs' own clock. Use runs of single jobs: jobs that run at once wait
for each other, and such waits are not the site's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from qtide.backends.models.site_model import Delays, QpuModel, SiteModel
from qtide.core.errors import UsageError
from qtide.core.ledger import Interval
from qtide.twin.replications import MeanEstimate
from qtide.twin.simulation import HybridJob, HybridStep


@dataclass(frozen=True)
class Fitted:
    """A parameter, its uncertainty, and the number of spans that it was fitted to."""

    value: float
    half: float
    samples: int

    @staticmethod
    def of(values: Sequence[float]) -> Fitted:
        """The median, since a busy machine only adds time, with the 95 % interval of the mean."""
        if not values:
            return Fitted(0.0, 0.0, 0)
        return Fitted(max(0.0, median(values)), MeanEstimate.of(values).half, len(values))


@dataclass(frozen=True)
class Calibration:
    """The parameters of a site, and the durations of the tasks that ran on it."""

    parameters: dict[str, Fitted]
    """grant, start, release, step and offload, in seconds."""
    tasks: dict[str, Fitted]
    """Seconds of each kind of task."""

    def site(self, nodes: int, *, keeps_agents: bool = False) -> SiteModel:
        """The site, with `nodes` nodes."""
        found = {name: each.value for name, each in self.parameters.items()}
        offload = found.pop("offload")
        return SiteModel(
            nodes=nodes,
            keeps_agents=keeps_agents,
            delays=Delays(**found),
            qpu=QpuModel(offload=offload),
        )

    def toml(self, nodes: int) -> str:
        """The site as a file."""
        lines = [f"nodes = {nodes}", "", "[delays]"]
        for name, each in self.parameters.items():
            if name == "offload":
                lines += ["", "[qpu]"]
            note = f"  # ± {each.half:.2g}, from {each.samples}"
            lines.append(f"{name} = {each.value:.6g}{note}")
        return "\n".join(lines) + "\n"


def calibrate(ledgers: Iterable[Sequence[Interval]]) -> Calibration:
    """Fit the parameters to the ledgers of single runs."""
    seen: dict[str, list[float]] = {
        name: [] for name in ("grant", "start", "release", "step", "offload")
    }
    tasks: dict[str, list[float]] = defaultdict(list)
    for spans in ledgers:
        for name, values in _samples(spans).items():
            seen[name] += values
        for span in spans:
            if span.what == "busy" and span.lane.startswith("node/"):
                tasks[span.label].append(span.seconds)
    if not tasks:
        raise UsageError("the runs have no finished task to calibrate from; name runs that worked")
    fitted = {name: Fitted.of(values) for name, values in seen.items()}
    return Calibration(fitted, {name: Fitted.of(values) for name, values in tasks.items()})


def job_of(spans: Sequence[Interval], nodes: int) -> HybridJob:
    """The job of a run as the twin plays it: each phase with what its tasks took."""
    groups: dict[str, list[Interval]] = defaultdict(list)
    for phase in _phases(spans):  # parts of a `together()` have the same number in the program
        groups[phase.key.partition(".")[0] or f"at {phase.start}"].append(phase)
    steps = []
    for phases in groups.values():
        first, last = min(each.start for each in phases), max(each.end for each in phases)
        inside = [
            each
            for each in spans
            if each.what == "busy" and first <= each.start and each.end <= last
        ]
        tasks = tuple(each.seconds for each in inside if each.lane.startswith("node/"))
        busy = sum(each.seconds for each in inside if each.lane.startswith("qpu/"))
        quantum = busy if any(each.lane == "quantum" for each in phases) else None
        if tasks or quantum is not None:
            steps.append(HybridStep(tasks, quantum))
    return HybridJob(tuple(steps), nodes=nodes)


def _samples(spans: Sequence[Interval]) -> dict[str, list[float]]:
    phases = _phases(spans)
    quantum = [phase for phase in phases if phase.lane == "quantum"]
    pairs = pairwise(phases)
    return {
        "grant": [each.seconds for each in spans if each.what == "wait" and each.lane == "nodes"],
        "start": [each.seconds for each in spans if each.what == "starting" and not each.label],
        "release": _releases(spans),
        "step": [max(0.0, after.start - before.end) for before, after in pairs],
        "offload": [phase.seconds - _device_seconds(spans, phase) for phase in quantum],
    }


def _phases(spans: Sequence[Interval]) -> list[Interval]:
    return sorted((span for span in spans if span.what == "phase"), key=lambda span: span.start)


def _device_seconds(spans: Sequence[Interval], phase: Interval) -> float:
    """Seconds of a quantum phase in which the device was busy, or was waited for."""
    return sum(
        span.seconds
        for span in spans
        if _within(span, phase)
        and ((span.what == "busy" and span.lane.startswith("qpu/")) or span.what == "wait")
    )


def _within(span: Interval, phase: Interval) -> bool:
    return phase.start <= span.start and span.end <= phase.end


def _releases(spans: Sequence[Interval]) -> list[float]:
    """Seconds from the end of the last task on a node until the node was free.

    Only the shortest of a run is used: the other nodes may have been idle before.
    """
    busy = [span for span in spans if span.what == "busy" and span.lane.startswith("node/")]
    found = []
    for held in spans:
        ends = [each.end for each in busy if each.lane == held.lane and _within(each, held)]
        if held.what == "held" and ends:
            found.append(held.end - max(ends))
    return [min(found)] if found else []
