"""Predicts a program from its earlier runs, without running any of its tasks again.

The interval of a prediction comes from many simulations. Each draws the delays and the durations
anew, from what the runs show of their spread, with Student's t distribution as there are few runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, median

from qtide.backends.models.site_model import SiteModel
from qtide.core.errors import UsageError
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.runs.comparison import was_alone
from qtide.runs.earlier import earlier_runs, is_done
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual
from qtide.runs.spec import Spec
from qtide.twin.advice import Range
from qtide.twin.calibration import Calibration, calibrate, delay_samples, job_of
from qtide.twin.simulation import HybridJob, Simulation, StrategySetup, Teach, lessons, untaught


@dataclass(frozen=True)
class PredictionCase:
    """The case to predict."""

    strategy: str
    jobs: int = 1
    nodes: int = 1
    """Maximum number of nodes per job."""
    site_nodes: int = 1
    vqpus: int = 1
    quantum: float | None = None
    """Seconds of each payload; None for those of the runs."""
    taught: bool = False
    """Whether jobs begin with what an earlier run has learnt, as runs outside virtual time do."""
    keeps_agents: bool | None = None
    """Whether agents outlive grants; None for what the runs show."""


@dataclass(frozen=True)
class Prediction:
    """Expected seconds and node-seconds of all jobs together, each with its 95 % interval."""

    case: PredictionCase
    wall: Range
    node_seconds: Range


DRAWS = 60
"""Simulations behind an interval."""
OUTSIDE = 0.025
"""Share of the draws left out on each side."""


def predict(
    ledgers: Sequence[Sequence[Interval]], case: PredictionCase, draws: int = DRAWS
) -> Prediction:
    """Simulate `case.jobs` copies of the runs' job on the site calibrated to all runs."""
    found = calibrate(ledgers, keeps_agents=case.keeps_agents)
    job, spread = job_of_case(ledgers, case), Variation.of([job_of(each, 1) for each in ledgers])
    site = found.site(case.site_nodes)
    teach = _lessons(job, site, case)
    wall, nodes, played = _played([job] * case.jobs, site, case, teach)
    events = {name: len(samples) for name, samples in delay_samples(played[0]).items()}
    starts = events["first"] + events["later"]
    events |= {"cold": events["first"], "start": starts, "start_beside": starts}
    walls, node_seconds = [wall], [nodes]
    for number in range(draws):
        random = Random(number)
        site = drawn_site(found, case.site_nodes, events, random)
        wall, nodes, _ = _played(list(spread.drawn(job, case.jobs, random)), site, case, teach)
        walls.append(wall * exp(random.gauss(0, PRIOR_TWIN)))
        node_seconds.append(nodes * exp(random.gauss(0, PRIOR_TWIN)))
    return Prediction(case, _interval(walls), _interval(node_seconds))


def job_of_case(ledgers: Sequence[Sequence[Interval]], case: PredictionCase) -> HybridJob:
    """Return the job to simulate: the runs' own, with the nodes and the payloads of the case."""
    job = typical([job_of(spans, case.nodes) for spans in ledgers])
    return job if case.quantum is None else with_quantum(job, case.quantum)


def expected_ledgers(
    ledgers: Sequence[Sequence[Interval]], case: PredictionCase
) -> list[list[Interval]]:
    """Return the ledgers of the simulation that the expected figures come from."""
    found = calibrate(ledgers, keeps_agents=case.keeps_agents)
    job, site = job_of_case(ledgers, case), found.site(case.site_nodes)
    return _played([job] * case.jobs, site, case, _lessons(job, site, case))[2]


def _lessons(job: HybridJob, site: SiteModel, case: PredictionCase) -> Teach:
    return lessons(job, site) if case.taught else untaught


MOST_RUNS = 12
"""Runs of a program that a prediction rests on, the newest ones."""


def runs_to_learn_from(
    program: str, words: Sequence[str], root: Path, cluster: str | None = None
) -> list[RunFolder]:
    """Find the runs of a program that were alone, oldest first, all like the newest of them.

    They have its arguments, cluster, QPU and time scale. Real runs take precedence over
    those in virtual time.
    """
    found = [
        run
        for run in earlier_runs(Spec(program), RunFolder.all(root))
        if is_done(run)
        and not run.is_warm_up
        and was_alone(run)
        and (not words or run.spec.words == list(words))
        and cluster in (None, _setup(run)[0])
    ]
    newest = max(found, key=lambda run: (not is_virtual(run.spec), run.created), default=None)
    if newest is None:
        what = " ".join([program, *words])
        raise UsageError(
            f"there is no finished run of {what} alone in {root} to predict from; run it once "
            "under static and once under workflow"
        )
    alike = [run for run in found if _setup(run) == _setup(newest)]
    return sorted(alike, key=lambda run: run.created)[-MOST_RUNS:]


def _setup(run: RunFolder) -> tuple[str, str, list[str], str, float]:
    """Return what has to be the same for two runs to say something about each other.

    Of the cluster, these are its kind and its partition or site file, but not its number of nodes.
    """
    spec = run.spec
    kind, _, where = spec.cluster.partition(":")
    place = "" if where.isdigit() else where
    return kind, place, spec.words, spec.qpu, spec.time_scale


def with_quantum(job: HybridJob, seconds: float) -> HybridJob:
    """Return the job with payloads that take so long."""
    steps = [s if s.quantum is None else replace(s, quantum=seconds) for s in job.steps]
    return replace(job, steps=tuple(steps))


def typical(jobs: Sequence[HybridJob]) -> HybridJob:
    """Return the newest job, with the median durations of all jobs that have the same phases.

    Tasks that run at the same time are compared by rank, since the order in which they start is
    a matter of milliseconds.
    """
    newest = jobs[-1]
    alike = [each for each in jobs if _shape(each) == _shape(newest)]
    steps = []
    for place, step in enumerate(newest.steps):
        others = [each.steps[place] for each in alike]
        ranked = zip(*(sorted(each.tasks) for each in others), strict=True)
        order = sorted(range(len(step.tasks)), key=step.tasks.__getitem__)
        tasks = list(step.tasks)
        for index, values in zip(order, ranked, strict=True):
            tasks[index] = median(values)
        quantum = None if step.quantum is None else median(each.quantum or 0.0 for each in others)
        steps.append(replace(step, tasks=tuple(tasks), quantum=quantum))
    return replace(newest, steps=tuple(steps))


PRIOR_DEGREES = 4
"""Degrees of freedom of what is assumed before any two runs can be compared."""
PRIOR_RUN, PRIOR_TASK, PRIOR_QUANTUM, PRIOR_DELAY = 0.02, 0.02, 0.005, 0.1
"""Assumed relative deviations: between runs, between calls, of payloads, and of delays."""
PRIOR_TWIN = 0.01
"""Assumed relative deviation of what happens from what the twin simulates."""
SHORT = 1e-3
"""Durations below this many seconds say nothing about relative deviations."""


@dataclass(frozen=True)
class Variation:
    """By how much the same work differs, as standard deviations of logarithms."""

    run: float
    """All tasks of one run together, compared with those of another."""
    task: float
    """One task, beside that."""
    quantum: float
    degrees: int

    @staticmethod
    def of(jobs: Sequence[HybridJob]) -> Variation:
        """Estimate from the runs with the newest one's phases; with one run, as assumed."""
        usual = typical(jobs)
        means, tasks, payloads = [], [], []
        alike = [each for each in jobs if _shape(each) == _shape(usual)]
        for job in alike:
            pairs = list(zip(job.steps, usual.steps, strict=True))
            logs = [
                log(one / other)
                for step, middle in pairs
                for one, other in zip(sorted(step.tasks), sorted(middle.tasks), strict=True)
                if min(one, other) > SHORT
            ]
            mean = fmean(logs) if logs else 0.0
            means.append(mean)
            tasks += [each - mean for each in logs]
            payloads += [
                log((step.quantum or 0.0) / (middle.quantum or 1.0))
                for step, middle in pairs
                if min(step.quantum or 0.0, middle.quantum or 0.0) > SHORT
            ]
        more = len(alike) - 1
        centre = fmean(means)
        return Variation(
            _deviation(PRIOR_RUN, [each - centre for each in means], more),
            _deviation(PRIOR_TASK, tasks, more * len(tasks) // len(alike)),
            _deviation(PRIOR_QUANTUM, payloads, more * len(payloads) // len(alike)),
            PRIOR_DEGREES + more,
        )

    def drawn(self, job: HybridJob, copies: int, random: Random) -> Iterator[HybridJob]:
        """Draw so many jobs of one run: what slows a run slows all of its jobs."""
        runs = self.degrees - PRIOR_DEGREES + 1
        factor = exp(_student(random, self.degrees) * self.run * sqrt(1 + 1 / runs))
        for _ in range(copies):
            steps = [
                replace(
                    step,
                    tasks=tuple(
                        factor * each * exp(random.gauss(0, self.task)) for each in step.tasks
                    ),
                    quantum=None
                    if step.quantum is None
                    else step.quantum * exp(random.gauss(0, self.quantum)),
                )
                for step in job.steps
            ]
            yield replace(job, steps=tuple(steps))


def drawn_site(found: Calibration, nodes: int, events: dict[str, int], random: Random) -> SiteModel:
    """Draw the site's delays: means over as many events as one job has.

    A delay that no run shows is anything up to what a node takes to come.
    """
    known = found.parameters
    unknown = known["grant"].value + known["start"].value
    drawn = {}
    for name, each in known.items():
        if not each.samples:
            value = random.uniform(0.0, unknown)
        else:
            degrees = PRIOR_DEGREES + each.samples - 1
            squares = PRIOR_DEGREES * (PRIOR_DELAY * each.value) ** 2
            squares += (each.samples - 1) * each.deviation**2
            mean = sqrt(squares / degrees * (1 / each.samples + 1 / max(1, events[name])))
            value = max(0.0, each.value + _student(random, degrees) * mean)
        drawn[name] = replace(each, value=value)
    return replace(found, parameters=drawn).site(nodes)


def _student(random: Random, degrees: int) -> float:
    return random.gauss(0, 1) / sqrt(random.gammavariate(degrees / 2, 2 / degrees))


def _deviation(prior: float, residuals: Sequence[float], degrees: int) -> float:
    """Pool the residuals with what is assumed without them."""
    squares = sum(each**2 for each in residuals)
    return sqrt((PRIOR_DEGREES * prior**2 + squares) / (PRIOR_DEGREES + degrees))


def _shape(job: HybridJob) -> list[tuple[int, bool]]:
    return [(len(step.tasks), step.quantum is None) for step in job.steps]


def _interval(values: Sequence[float]) -> Range:
    """Return the first value, with the interval that holds most of all values."""
    drawn = sorted(values)
    cut = int(OUTSIDE * len(drawn))
    return Range(min(values[0], drawn[cut]), values[0], max(values[0], drawn[-1 - cut]))


def _played(
    jobs: Sequence[HybridJob], site: SiteModel, case: PredictionCase, teach: Teach
) -> tuple[float, float, list[list[Interval]]]:
    """Return the wall seconds and node-seconds of all jobs, and their ledgers."""
    ledgers: list[list[Interval]] = []
    setup = StrategySetup(case.strategy, case.vqpus)
    simulation = Simulation(site, setup, lambda _, each: ledgers.append(each), teach=teach)
    wall = simulation.run(jobs)
    return wall, sum(measure(each).nodes_held for each in ledgers), ledgers
