"""Calibration: fits the parameters of a site to the ledgers of real runs.

All seconds are those of the runs' own clock. Use runs of single jobs: concurrent jobs wait for
each other, and the site does not cause such waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median, stdev
from typing import NamedTuple

from qtide.backends.clusters.kind import cluster_kind
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import Billing, Delays, SiteModel
from qtide.core.errors import UsageError
from qtide.core.ledger import Interval
from qtide.core.resources import PLAIN, Needs
from qtide.runs.spec import Spec
from qtide.twin.replications import MeanEstimate
from qtide.twin.simulation import HybridJob, HybridStep


@dataclass(frozen=True)
class Fitted:
    """A parameter, its uncertainty, and the number of spans it was fitted to."""

    value: float
    half: float
    samples: int
    deviation: float = 0.0
    """Standard deviation of the observations."""

    @staticmethod
    def of(values: Sequence[float]) -> Fitted:
        """Fit the median (a busy machine only adds time) with the 95 % interval of the mean."""
        if not values:
            return Fitted(0.0, 0.0, 0)
        deviation = stdev(values) if len(values) > 1 else 0.0
        half = MeanEstimate.of(values).half
        return Fitted(max(0.0, median(values)), half, len(values), deviation)

    @property
    def doubt(self) -> str:
        """The reason not to trust the value; empty if it is reliable."""
        if not self.samples:
            return "no run shows it"
        if self.samples < FEWEST:
            return f"only {self.samples} of {FEWEST} observations"
        if self.half > max(self.value, IRRELEVANT):
            return f"{self.value:.2g} ± {self.half:.2g} s says nothing"
        return ""


PARAMETERS = ("grant", "start", "start_beside", "cold", "release", "step", "offload")
FEWEST = 3
"""Minimum number of observations for a reliable parameter."""
IRRELEVANT = 0.1
"""Uncertainty in seconds that does not matter."""
NOTICED = 1e-3
"""Fewest seconds by which starts side by side have to slow each other down to be told apart."""
REMEDIES = {
    "grant": "a single job under workflow, which requests nodes in every phase",
    "start": "a single job under workflow, which starts its nodes anew in every phase",
    "start_beside": "a single job under workflow, with phases of one task and of several",
    "cold": "a single job under workflow, which starts its nodes anew in every phase",
    "release": "a single job under workflow, which gives nodes back before its end",
    "step": "a single job with more phases",
    "offload": "a single job with more quantum phases",
}
"""The most informative run for each parameter."""


@dataclass(frozen=True)
class Calibration:
    """The parameters of a site and the durations of the tasks that ran on it."""

    parameters: dict[str, Fitted]
    """grant, start, start_beside and cold (if they are known), release, step and offload, in
    seconds."""
    tasks: dict[str, Fitted]
    """Duration of each kind of task in seconds."""
    keeps_agents: bool = False
    """Whether a node's agent outlives a grant, so that later starts on it are faster."""
    sizes: tuple[tuple[int, int], ...] = ()
    """The numbers of cores and GPUs of the nodes held, one pair for each kind, the usual one first;
    empty if unknown."""
    rates: tuple[float, ...] = ()
    """What the site charges for each second of a node of these sizes; 0 if unknown."""

    def site(self, nodes: int) -> SiteModel:
        """Return the site with `nodes` nodes, of each kind if there are several."""
        found = {name: each.value for name, each in self.parameters.items()}
        offload = found.pop("offload")
        cores, gpus = self.sizes[0] if self.sizes else (SiteModel.cores, SiteModel.gpus)
        return SiteModel(
            nodes=nodes,
            cores=cores,
            gpus=gpus,
            kinds=tuple(self._kinds(nodes)),
            billing=Billing(kinds=self._charged()),
            keeps_agents=self.keeps_agents,
            delays=Delays(**found),
            qpu=QpuModel(offload=offload),
        )

    def _kinds(self, nodes: int) -> list[str]:
        """The kinds of nodes, `nodes` of each; empty if all nodes are alike."""
        if len(self.sizes) < 2:
            return []
        return [f"{kind_name(size)}:{nodes},cores={size[0]},gpus={size[1]}" for size in self.sizes]

    def _charged(self) -> dict[str, float]:
        """What each second of a node is charged, by the name of its kind; empty if unknown."""
        names = [PLAIN] if len(self.sizes) == 1 else map(kind_name, self.sizes)
        return dict(zip(names, self.rates, strict=True)) if any(self.rates) else {}

    def doubts(self) -> list[str]:
        """Return a sentence for each unreliable parameter."""
        return [f"{name}: {each.doubt}" for name, each in self.parameters.items() if each.doubt]

    def advice(self) -> str:
        """Name the further run that would reduce the uncertainty most; empty if none is needed."""
        doubtful = {name: each for name, each in self.parameters.items() if each.doubt}
        if not doubtful:
            return ""
        worst = max(doubtful, key=lambda name: (not doubtful[name].samples, doubtful[name].half))
        return f"add {REMEDIES[worst]}: {worst} is the least certain"

    def toml(self, nodes: int) -> str:
        """Return the text of the site file."""
        lines = [f"nodes = {nodes}"]
        if kinds := self._kinds(nodes):
            lines = [f"kinds = {kinds}"]
        elif self.sizes:
            lines += [f"cores = {self.sizes[0][0]}", f"gpus = {self.sizes[0][1]}"]
        lines += ["keeps_agents = true"] if self.keeps_agents else []
        if charged := self._charged():
            rates = [f"{kind} = {rate:.6g}" for kind, rate in charged.items()]
            lines += ["", "[billing.kinds]", *rates]
        lines += ["", "[delays]"]
        for name, each in self.parameters.items():
            if name == "offload":
                lines += ["", "[qpu]"]
            doubt = f"; doubtful: {each.doubt}" if each.doubt else ""
            note = f"  # ± {each.half:.2g}, from {each.samples}{doubt}"
            lines.append(f"{name} = {each.value:.6g}{note}")
        return "\n".join(lines) + "\n"


def calibrate(
    ledgers: Iterable[Sequence[Interval]], *, keeps_agents: bool | None = None
) -> Calibration:
    """Fit the parameters to the ledgers of single runs.

    Unless it is known whether nodes keep their agents, they do if later starts are much faster.
    """
    seen: dict[str, list[float]] = defaultdict(list)
    tasks: dict[str, list[float]] = defaultdict(list)
    firsts: list[NodeStart] = []
    laters: list[NodeStart] = []
    keeps = []
    read = list(ledgers)
    for spans in read:
        for name, values in delay_samples(spans).items():
            seen[name] += values
        first, later = _first_and_later(spans)
        firsts += first
        laters += later
        keeps.append(_keeps_agents(spans))
        for span in spans:
            if span.what == "busy" and span.lane.startswith("node/"):
                tasks[span.label].append(_worked(span, spans))
    seen |= _starts(firsts, laters)
    rates = _rates(span for spans in read for span in spans)
    if not tasks:
        raise UsageError("the runs have no finished task to calibrate from; name runs that worked")
    return Calibration(
        {name: Fitted.of(seen[name]) for name in PARAMETERS if name in seen},
        {name: Fitted.of(values) for name, values in tasks.items()},
        any(keeps) if keeps_agents is None else keeps_agents,
        tuple(rates),
        tuple(rates.values()),
    )


def kept_agents(spec: Spec) -> bool | None:
    """Return whether the cluster of a run keeps agents; None if it does not say."""
    kind, _ = cluster_kind(spec.cluster)
    return kind.keeps_agents(spec.setting())


def kind_name(size: tuple[int, int]) -> str:
    """Name a kind of nodes by its numbers of cores and GPUs, which is all that ledgers say."""
    return f"cores{size[0]}gpus{size[1]}"


def _sizes(spans: Sequence[Interval]) -> dict[str, tuple[int, int]]:
    """Return the cores and GPUs of each node, by lane, in the order in which they were held."""
    held = sorted((span for span in spans if span.what == "held"), key=lambda span: span.start)
    return {span.lane: (span.part[0], span.part[1]) for span in held if span.part}


def _rates(spans: Iterable[Interval]) -> dict[tuple[int, int], float]:
    """Return what each size of nodes is charged, the usual one first, which runs know by its rate.

    The order is that in which they were held, if nothing is charged.
    """
    found: dict[tuple[int, int], float] = {}
    usual = 0.0
    for span in sorted(spans, key=lambda span: span.start):
        if span.what == "held" and span.part:
            found.setdefault((span.part[0], span.part[1]), span.rate)
        elif span.what == "run":
            usual = span.rate
    return dict(sorted(found.items(), key=lambda each: each[1] != usual))


def _needs(tasks: Sequence[Interval], sizes: Mapping[str, tuple[int, int]]) -> Needs:
    """Return what the tasks of a step had of a node; if they differ, the most."""
    parts = [task.part for task in tasks if task.part is not None]
    several = len(set(sizes.values())) > 1
    kind = kind_name(sizes[tasks[0].lane]) if several and tasks else None
    if len(parts) < len(tasks) or not parts:
        return Needs(kind=kind)
    return Needs(max(part[0] for part in parts), max(part[1] for part in parts), kind=kind)


def job_of(spans: Sequence[Interval], nodes: int) -> HybridJob:
    """Reconstruct the job of a run: its steps, the seconds they took, and the parts of nodes.

    The phases of one `together` form one step: their tasks and payloads run in parallel. Several
    phases of one of its parts count as one task that takes as long as all of them.
    """
    phases = _phases(spans)
    tasks = _tasks_by_phase(spans, phases)
    sizes = _sizes(spans)
    steps = []
    for _, group in groupby(phases, key=lambda phase: phase.key.partition(".")[0] or phase):
        members = list(group)
        quantum = [phase for phase in members if phase.lane == "quantum"]
        parts: dict[str, list[list[tuple[str, float]]]] = defaultdict(list)
        for phase in members:
            if phase.lane != "quantum" and tasks[phase]:
                part = ".".join(phase.key.split(".")[:2])
                parts[part].append([(each.label, _worked(each, spans)) for each in tasks[phase]])
        works: list[tuple[str, float]] = []
        for chain in parts.values():
            works += chain[0] if len(chain) == 1 else [_in_turn(chain)]
        on_device = sum(
            span.seconds
            for phase in quantum
            for span in spans
            if span.what == "busy" and span.lane.startswith("qpu/") and _within(span, phase)
        )
        if works or quantum:
            names, seconds = zip(*works, strict=True) if works else ((), ())
            needs = _needs([task for phase in members for task in tasks[phase]], sizes)
            quantum_seconds = on_device if quantum else None
            steps.append(HybridStep(seconds, quantum_seconds, needs=needs, names=names))
    return HybridJob(tuple(steps), nodes=nodes)


def _in_turn(chain: Sequence[Sequence[tuple[str, float]]]) -> tuple[str, float]:
    """Take phases that follow each other for one task."""
    names = [name for phase in chain for name, _ in phase]
    return " + ".join(dict.fromkeys(names)), sum(max(s for _, s in phase) for phase in chain)


def _tasks_by_phase(
    spans: Sequence[Interval], phases: Sequence[Interval]
) -> dict[Interval, list[Interval]]:
    """Return each phase's tasks by their numbers or, in older ledgers, in order of their start."""
    found: dict[Interval, list[Interval]] = {phase: [] for phase in phases}
    classical = [phase for phase in phases if phase.lane != "quantum"]
    by_key = {phase.key: phase for phase in classical if phase.key}
    for span in sorted(spans, key=lambda span: (span.start, len(span.lane), span.lane)):
        if span.what == "busy" and span.lane.startswith("node/"):
            own = by_key.get(span.key.rpartition("/")[0]) or _around(span, classical)
            if own is not None:
                found[own].append(span)
    for tasks in found.values():
        tasks.sort(key=_number)
    return found


def _around(task: Interval, phases: Sequence[Interval]) -> Interval | None:
    """Return the phase in whose time a task ran, one with its name if there are several."""
    around = [phase for phase in phases if _within(task, phase)]
    named = [phase for phase in around if task.label in phase.label]
    return next(iter(named or around), None)


def _number(task: Interval) -> int:
    """Return the number of a task in its phase, by its key; 0 if the ledger does not say it."""
    number = task.key.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


class NodeStart(NamedTuple):
    """A node's start in a run."""

    seconds: float
    nodes: int
    """Number of the job's nodes that started at the same time, including this one."""


def _keeps_agents(spans: Sequence[Interval]) -> bool:
    """Whether nodes the job had held before started in less than half the time."""
    return _differ(*_first_and_later(spans))


def _differ(first: Sequence[NodeStart], later: Sequence[NodeStart]) -> bool:
    """Whether later starts take less than half the time of first ones."""
    return bool(later) and _usual(later) < _usual(first) / 2


def _usual(starts: Sequence[NodeStart]) -> float:
    return median(each.seconds for each in starts)


def _worked(task: Interval, spans: Sequence[Interval]) -> float:
    """Return the seconds that a task worked, without what it imported."""
    imported = [each for each in spans if each.what == "starting" and each.label]
    return task.seconds - sum(
        max(0.0, min(each.end, task.end) - max(each.start, task.start))
        for each in imported
        if each.lane == task.lane
    )


def _first_and_later(spans: Sequence[Interval]) -> tuple[list[NodeStart], list[NodeStart]]:
    """Return each node's first start in a run, and all further starts.

    What tasks import on a node counts as part of its first start: it is imported once on each
    node, however many tasks run there.
    """
    starts: dict[str, list[NodeStart]] = defaultdict(list)
    imports: dict[str, float] = defaultdict(float)
    starting = [span for span in spans if span.what == "starting" and not span.label]
    for span in sorted(spans, key=lambda span: span.start):
        if span.what == "starting" and span.label:
            imports[span.lane] += span.seconds
        elif span.what == "starting":
            middle = (span.start + span.end) / 2
            nodes = sum(each.start <= middle <= each.end for each in starting)
            starts[span.lane].append(NodeStart(span.seconds, nodes))
    first = [NodeStart(own[0].seconds + imports[n], own[0].nodes) for n, own in starts.items()]
    later = [each for own in starts.values() for each in own[1:]]
    held = [each for each in spans if each.what == "held" and each.lane.startswith("node/")]
    return first or [NodeStart(0.0, 1)] * len(held), later  # a start of no time is not recorded


def _starts(first: Sequence[NodeStart], later: Sequence[NodeStart]) -> dict[str, list[float]]:
    """Tell a node's usual start from what the first one takes longer, if that is much.

    Nodes that start at the same time compete for a file system, or for the cores of one machine,
    so starts are compared by the number of nodes.
    """
    differ = _differ(first, later)
    alike = [*first] if differ else [*first, *later]
    least = min((each.nodes for each in alike), default=1)
    alone = median([each.seconds for each in alike if each.nodes == least] or [0.0])
    more = [(s.seconds - alone) / (s.nodes - least) for s in alike if s.nodes > least]
    slower = median(more) if more else 0.0
    if slower < NOTICED:
        slower, more = 0.0, []

    def own(starts: Sequence[NodeStart]) -> list[float]:
        return [each.seconds - slower * (each.nodes - 1) for each in starts]

    found = {"start": own(alike)}
    if differ:
        usual = _usual(later)
        found = {
            "start": [each.seconds for each in later],
            "cold": [each - usual for each in own(first)],
        }
    return found | ({"start_beside": more} if more else {})


def delay_samples(spans: Sequence[Interval]) -> dict[str, list[float]]:
    """Return every observation of each delay in a run."""
    phases = _phases(spans)
    quantum = [phase for phase in phases if phase.lane == "quantum"]
    pairs = pairwise(phases)
    first, later = _first_and_later(spans)
    return {
        "grant": [each.seconds for each in spans if each.what == "wait" and each.lane == "nodes"],
        "first": [each.seconds for each in first],
        "later": [each.seconds for each in later],
        "release": _releases(spans),
        "step": [max(0.0, after.start - before.end) for before, after in pairs],
        "offload": [phase.seconds - _device_seconds(spans, phase) for phase in quantum],
    }


def _phases(spans: Sequence[Interval]) -> list[Interval]:
    return sorted((span for span in spans if span.what == "phase"), key=lambda span: span.start)


def _device_seconds(spans: Sequence[Interval], phase: Interval) -> float:
    """Seconds of a quantum phase spent using the device or waiting for it."""
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

    Nodes that were held together wait for the longest task on any of them, and so does a node that
    is given back soon after the end of its phase, as under malleable. Skip nodes that are held
    into the last phase: they may have been idle, and the program itself takes time to end. Of the
    others, use only the shorter half: the rest may have been kept idle for a while.
    """
    phases = _phases(spans)
    last = max((phase.start for phase in phases), default=0.0)
    busy = [span for span in spans if span.what == "busy" and span.lane.startswith("node/")]
    found = []
    for together in _held_together(spans):
        lanes = {held.lane for held in together}
        first, final = together[0], max(held.end for held in together)
        own = [each.end for each in busy if each.lane in lanes and first.start <= each.end <= final]
        if own:
            idle = max(own)
            over = max(_ends_with(phases, busy, idle), default=idle)  # of the tasks of its phase
            since = over if 0 <= final - over < over - idle else idle
            found += [max(0.0, held.end - since) for held in together if held.end <= last]
    return sorted(found)[: max(1, len(found) // 2)]


def _ends_with(
    phases: Sequence[Interval], busy: Sequence[Interval], moment: float
) -> Iterator[float]:
    """Yield when the tasks of the phase ended that was on at a moment."""
    for phase in phases:
        if phase.start <= moment <= phase.end:
            yield from (each.end for each in busy if _within(each, phase))


TOGETHER = 0.02
"""Share of the time for which nodes are held by which those held together differ at either end."""


def _held_together(spans: Sequence[Interval]) -> list[list[Interval]]:
    """Group the nodes that were granted at about the same moment, and given back at another."""
    groups: list[list[Interval]] = []
    nodes = [span for span in spans if span.what == "held" and span.lane.startswith("node/")]
    for held in sorted(nodes, key=lambda held: (held.start, held.end)):
        most = TOGETHER * held.seconds
        before = groups[-1][0] if groups else None
        if before and max(abs(before.start - held.start), abs(before.end - held.end)) <= most:
            groups[-1].append(held)
        else:
            groups.append([held])
    return groups
