"""The workload of a site in one replication: hybrid jobs and the jobs of other users.

Every random number derives from the site's seeds and the replication's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from qtide.backends.models.background import Background, Generator
from qtide.backends.models.failures import Failures
from qtide.backends.models.site_model import Mix, SiteModel
from qtide.backends.models.trace import Trace
from qtide.core.resources import WHOLE, Needs
from qtide.twin.simulation import HybridJob, HybridStep


@dataclass(frozen=True)
class HybridWorkload:
    """The jobs of one replication, read chunk by chunk."""

    model: SiteModel
    """The site with the replication's seeds."""

    @staticmethod
    def of(model: SiteModel, replication: int) -> HybridWorkload:
        """Return the workload of a replication."""
        parts = [
            replace(part, background=_seeded(part.background, [replication, number]))
            for number, part in enumerate(model.partitions)
        ]
        qpu, service = model.qpu, model.service
        if service is not None:
            failures = _failing(service.failures, [replication, 7])
            service = replace(service, failures=failures)
        return HybridWorkload(
            replace(
                model,
                background=_seeded(model.background, [replication]),
                partitions=tuple(parts),
                hybrid=replace(model.hybrid, seed=_mixed([model.hybrid.seed, replication, 1])),
                failures=_failing(model.failures, [replication, 4]),
                qpu=replace(qpu, failures=_failing(qpu.failures, [replication, 6])),
                service=service,
            )
        )

    def others(self) -> list[Iterator[Trace]]:
        """Return the non-hybrid jobs of each partition."""
        return [self._others(number) for number in range(len(self.model.parts()))]

    def hybrids(self) -> Iterator[HybridJob]:
        """Return the hybrid jobs in order of submission."""
        if not (self.model.hybrid.share or self.model.hybrid.marked):
            return self._generated()
        partitions = range(len(self.model.parts()))
        return merge(*(self._converted(each) for each in partitions), key=lambda job: job.submit)

    def _others(self, partition: int) -> Iterator[Trace]:
        for chunk, hybrid in self._marked(partition):
            yield chunk.part(~hybrid)

    def _generated(self) -> Iterator[HybridJob]:
        """Generate the jobs of the mix, spread over the partitions by weight."""
        mix = self.model.hybrid
        weights = [part.hybrid for part in self.model.partitions] or [1.0]
        chances = np.array(weights) / sum(weights)
        arrivals = Generator(jobs=mix.jobs, days=mix.days, users=mix.users, seed=mix.seed)
        random, places = np.random.default_rng([mix.seed, 2]), np.random.default_rng([mix.seed, 5])
        for chunk in arrivals.chunks():
            factors = _factors(random, mix.variation, len(chunk))
            where = places.choice(len(weights), len(chunk), p=chances)
            for number, submit in enumerate(chunk.submit):
                job = _job(mix, float(submit), factors[number], mix.nodes, number)
                yield replace(job, user=int(chunk.user[number]), partition=int(where[number]))

    def _converted(self, partition: int) -> Iterator[HybridJob]:
        """Convert jobs of a partition's trace to hybrid jobs of the same length."""
        mix = self.model.hybrid
        for chunk, hybrid in self._marked(partition):
            jobs = chunk.part(hybrid)
            for number in range(len(jobs)):
                nodes = int(jobs.nodes[number])
                usual = _job(mix, 0.0, (1.0, 1.0), nodes, 0).shortest
                factor = float(jobs.run[number]) / max(usual, 1e-9)
                job = _job(mix, float(jobs.submit[number]), (factor, factor), nodes, number)
                yield replace(job, user=int(jobs.user[number]), partition=partition)

    def _marked(self, partition: int) -> Iterator[tuple[Trace, Any]]:
        """Yield the chunks of a partition's trace, each with a mask of its hybrid jobs."""
        mix = self.model.hybrid
        share = mix.share
        if self.model.partitions and not self.model.partitions[partition].hybrid:
            share = 0.0
        part = self.model.parts()[partition]
        for number, chunk in enumerate(part.background.chunks(part.nodes, part.cores)):
            if mix.marked:
                unmarked = np.zeros(len(chunk), dtype=bool)
                yield chunk, unmarked if chunk.hybrid is None else chunk.hybrid
                continue
            seeds = [mix.seed, 3, number, *([partition] if partition else [])]
            yield chunk, np.random.default_rng(seeds).random(len(chunk)) < share


def warnings(model: SiteModel) -> list[str]:
    """Return warnings about traces that do not fit their site or are only partly usable."""
    found = []
    for part, name in zip(
        model.parts(), [each.name for each in model.partitions] or [""], strict=True
    ):
        if part.background.trace is not None:
            place = f"partition {name}: " if name else ""
            found += [place + each for each in _of_trace(part)]
    return found


def _of_trace(part: SiteModel) -> Iterator[str]:
    file = Path(str(part.background.trace))
    read = part.background.read(part.cores)
    trace, nodes = read.trace, part.nodes
    if read.bad:
        yield (
            f"{len(read.bad):,} of {len(read.bad) + len(trace):,} rows of {file.name} are skipped; "
            f"the first: {read.bad[0]}"
        )
    if read.processors and read.nodes and read.processors > read.nodes:
        yield (
            f"{file.name} counts processors ({read.processors:,} on {read.nodes:,} nodes), and "
            f"each is taken for a node; set background.processors and cores = "
            f"{read.processors / read.nodes:g}, or give the site {read.processors:,} nodes"
        )
    wide = trace.nodes > nodes
    if wide.any():
        yield (
            f"{int(wide.sum()):,} of {len(trace):,} jobs of {file.name} need more than the site's "
            f"{nodes:,} nodes (up to {int(trace.nodes.max()):,}) and are left out"
        )
    trace = trace.fitting(nodes)
    seconds = float(np.ptp(trace.submit)) if len(trace) else 0.0
    needed = float((trace.nodes * trace.run).sum()) / seconds if seconds else 0.0
    if needed > nodes:
        yield (
            f"the jobs of {file.name} keep {needed:,.0f} nodes busy on average, but the site has "
            f"{nodes:,}: waits grow as long as jobs arrive"
        )


def most_in_use(trace: Trace) -> int:
    """Return the peak number of nodes in use if no job of the trace waited."""
    moments = np.concatenate([trace.submit + trace.run, trace.submit])  # ends first
    changes = np.concatenate([-trace.nodes, trace.nodes])
    order = np.argsort(moments, kind="stable")
    return max(int(trace.nodes.max()), int(np.cumsum(changes[order]).max()))


def _job(mix: Mix, submit: float, factors: tuple[float, float], nodes: int, seed: int) -> HybridJob:
    """Build a job of the mix; `factors` scale its classical and quantum seconds."""
    classical, quantum = factors
    steps = [HybridStep(quantum=mix.quantum * quantum)]
    if mix.table:
        # One task, on as many nodes as the table and the job allow.
        table = tuple((on, s * classical) for on, s in sorted(mix.table.items()) if on <= nodes)
        on, seconds = table[-1]
        steps.insert(0, HybridStep((seconds,), nodes=on, table=table if mix.malleable else ()))
    elif mix.tasks:
        tasks = tuple(seconds * classical for seconds in mix.tasks)
        steps.insert(0, HybridStep(tasks, needs=_needs(mix.needs)))
    if mix.alone:
        steps.append(HybridStep((mix.alone * classical,), needs=_needs(mix.alone_needs)))
    return HybridJob(tuple(steps) * mix.rounds, submit, nodes, seed)


def _needs(words: str) -> Needs:
    return Needs.parse(words) if words else WHOLE


def _factors(random: Any, variation: float, number: int) -> list[tuple[float, float]]:
    """Draw two log-normal factors per job, with mean 1 and coefficient of variation `variation`."""
    sigma = sqrt(log(1 + variation**2))
    drawn = random.lognormal(-(sigma**2) / 2, sigma, (number, 2)) if sigma else np.ones((number, 2))
    return [(float(first), float(second)) for first, second in drawn]


def _seeded(others: Background, more: list[int]) -> Background:
    """Return the background with a new generator seed; a trace stays unchanged."""
    if others.generate is None:
        return others
    seed = _mixed([others.generate.seed, *more])
    return replace(others, generate=replace(others.generate, seed=seed))


def _failing(failures: Failures | None, more: list[int]) -> Failures | None:
    """Return the failures with a new seed."""
    return failures and replace(failures, seed=_mixed([failures.seed, *more]))


def _mixed(seeds: list[int]) -> int:
    """Combine several seeds into one."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])
