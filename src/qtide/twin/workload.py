"""The jobs of a simulation: others' jobs as a trace, and hybrid jobs among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from math import log, sqrt
from typing import Any

import numpy as np

from qtide.clusters.batch import background
from qtide.models.generator import Generator
from qtide.models.mix import Mix
from qtide.models.site import Background, SiteModel
from qtide.models.trace import Trace
from qtide.twin.hybrid import HybridJob, Step


@dataclass(frozen=True)
class Workload:
    """What comes to a site in one replication; both sides are read piece by piece."""

    model: SiteModel

    @staticmethod
    def of(model: SiteModel, replication: int) -> Workload:
        """That of a replication: every random number comes from its seeds."""
        parts = [
            replace(part, background=_seeded(part.background, [replication, number]))
            for number, part in enumerate(model.partitions)
        ]
        failures = model.failures
        if failures is not None:
            failures = replace(failures, seed=_mixed([failures.seed, replication, 4]))
        return Workload(
            replace(
                model,
                background=_seeded(model.background, [replication]),
                partitions=tuple(parts),
                hybrid=replace(model.hybrid, seed=_mixed([model.hybrid.seed, replication, 1])),
                failures=failures,
            )
        )

    def others(self) -> list[Iterator[Trace]]:
        """The jobs that are not hybrid, by partition."""
        return [self._others(number) for number in range(len(self.model.parts()))]

    def hybrids(self) -> Iterator[HybridJob]:
        """The hybrid jobs, in the order of their submission."""
        if not self.model.hybrid.share:
            return self._generated()
        places = range(len(self.model.parts()))
        return merge(*(self._turned(place) for place in places), key=lambda job: job.submit)

    def _others(self, place: int) -> Iterator[Trace]:
        for chunk, hybrid in self._chosen(place):
            yield chunk.part(~hybrid)

    def _generated(self) -> Iterator[HybridJob]:
        """As many as the mix says, of any size but the same for every partition."""
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

    def _turned(self, place: int) -> Iterator[HybridJob]:
        """Jobs of a trace as hybrid ones that take as long."""
        mix = self.model.hybrid
        for chunk, hybrid in self._chosen(place):
            jobs = chunk.part(hybrid)
            for number in range(len(jobs)):
                nodes = int(jobs.nodes[number])
                usual = _job(mix, 0.0, (1.0, 1.0), nodes, 0).shortest
                factor = float(jobs.run[number]) / max(usual, 1e-9)
                job = _job(mix, float(jobs.submit[number]), (factor, factor), nodes, number)
                yield replace(job, user=int(jobs.user[number]), partition=place)

    def _chosen(self, place: int) -> Iterator[tuple[Trace, Any]]:
        """The chunks of a partition's trace, and which of their jobs are hybrid."""
        mix = self.model.hybrid
        share = mix.share
        if self.model.partitions and not self.model.partitions[place].hybrid:
            share = 0.0
        for number, chunk in enumerate(background(self.model.parts()[place])):
            random = np.random.default_rng([mix.seed, 3, number, *([place] if place else [])])
            yield chunk, random.random(len(chunk)) < share


def _job(mix: Mix, submit: float, factors: tuple[float, float], nodes: int, seed: int) -> HybridJob:
    classical, quantum = factors
    steps = [
        *_classical(mix, classical, nodes),
        Step(quantum=mix.quantum * quantum),
        *([Step((mix.alone * classical,))] if mix.alone else []),
    ]
    return HybridJob(tuple(steps) * mix.rounds, submit, nodes, seed)


def _classical(mix: Mix, factor: float, nodes: int) -> list[Step]:
    """The tasks side by side; or one task, on as many nodes as its table and the job allow."""
    if mix.table:
        on = max(number for number in mix.table if number <= nodes)
        return [Step((mix.table[on] * factor,), nodes=on)]
    return [Step(tuple(seconds * factor for seconds in mix.tasks))] if mix.tasks else []


def _factors(random: Any, variation: float, number: int) -> list[tuple[float, float]]:
    """By how much the durations of each job, classical and quantum, differ from the usual."""
    sigma = sqrt(log(1 + variation**2))
    drawn = random.lognormal(-(sigma**2) / 2, sigma, (number, 2)) if sigma else np.ones((number, 2))
    return [(float(first), float(second)) for first, second in drawn]


def _seeded(others: Background, more: list[int]) -> Background:
    """Generated jobs of another seed."""
    if others.generate is None:
        return others
    seed = _mixed([others.generate.seed, *more])
    return replace(others, generate=replace(others.generate, seed=seed))


def _mixed(seeds: list[int]) -> int:
    """One seed out of several."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])
