"""The jobs of a simulation: others' jobs as a trace, and hybrid jobs among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any

import numpy as np

from qtide.clusters.batch import background
from qtide.models.generator import Generator
from qtide.models.mix import Mix
from qtide.models.site import SiteModel
from qtide.models.trace import Trace
from qtide.twin.hybrid import HybridJob, Step


@dataclass(frozen=True)
class Workload:
    """What comes to a site in one replication; both sides are read piece by piece."""

    model: SiteModel

    @staticmethod
    def of(model: SiteModel, replication: int) -> Workload:
        """That of a replication: every random number comes from its seeds."""
        others = model.background
        if others.generate is not None:
            seed = [others.generate.seed, replication]
            generate = replace(others.generate, seed=_mixed(seed))
            others = replace(others, generate=generate)
        hybrid = replace(model.hybrid, seed=_mixed([model.hybrid.seed, replication, 1]))
        return Workload(replace(model, background=others, hybrid=hybrid))

    def others(self) -> Iterator[Trace]:
        """The jobs that are not hybrid."""
        for chunk, hybrid in self._chosen():
            yield chunk.part(~hybrid)

    def hybrids(self) -> Iterator[HybridJob]:
        """The hybrid jobs, in the order of their submission."""
        mix = self.model.hybrid
        if mix.share:
            for chunk, hybrid in self._chosen():
                yield from _turned(chunk.part(hybrid), mix)
            return
        arrivals = Generator(jobs=mix.jobs, days=mix.days, seed=mix.seed)
        random = np.random.default_rng([mix.seed, 2])
        for chunk in arrivals.chunks():
            factors = _factors(random, mix.variation, len(chunk))
            for number, submit in enumerate(chunk.submit):
                yield _job(mix, float(submit), factors[number], mix.nodes, number)

    def _chosen(self) -> Iterator[tuple[Trace, Any]]:
        """The chunks of the trace, and which of their jobs are hybrid."""
        mix = self.model.hybrid
        for number, chunk in enumerate(background(self.model)):
            random = np.random.default_rng([mix.seed, 3, number])
            yield chunk, random.random(len(chunk)) < mix.share


def _turned(chunk: Trace, mix: Mix) -> Iterator[HybridJob]:
    """Jobs of a trace as hybrid ones that take as long."""
    usual = _job(mix, 0.0, (1.0, 1.0), mix.nodes, 0).shortest
    for number in range(len(chunk)):
        factor = float(chunk.run[number]) / max(usual, 1e-9)
        nodes = int(chunk.nodes[number])
        yield _job(mix, float(chunk.submit[number]), (factor, factor), nodes, number)


def _job(mix: Mix, submit: float, factors: tuple[float, float], nodes: int, seed: int) -> HybridJob:
    classical, quantum = factors
    tasks = tuple(seconds * classical for seconds in mix.tasks)
    steps = [
        *([Step(tasks)] if tasks else []),
        Step(quantum=mix.quantum * quantum),
        *([Step((mix.alone * classical,))] if mix.alone else []),
    ]
    return HybridJob(tuple(steps) * mix.rounds, submit, nodes, seed)


def _factors(random: Any, variation: float, number: int) -> list[tuple[float, float]]:
    """By how much the durations of each job, classical and quantum, differ from the usual."""
    sigma = sqrt(log(1 + variation**2))
    drawn = random.lognormal(-(sigma**2) / 2, sigma, (number, 2)) if sigma else np.ones((number, 2))
    return [(float(first), float(second)) for first, second in drawn]


def _mixed(seeds: list[int]) -> int:
    """One seed out of several."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])
