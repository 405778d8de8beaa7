"""A workload under several strategies and numbers of virtual QPUs, replicated, on all cores.

Every replication is a world of its own with seeds of its own, so the result does not depend on how
many cores compute it, nor in which order they do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import sqrt
from multiprocessing import get_context
from statistics import fmean, stdev

from qtide.models.site import SiteModel
from qtide.twin.play import Policy, Stage
from qtide.twin.tally import Figures, Tally
from qtide.twin.workload import Workload

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571)
"""Student's t for 95 %, by degrees of freedom; beyond, a series in their inverse."""


@dataclass(frozen=True)
class Estimate:
    """A mean over replications, and half the width of its 95 % confidence interval."""

    mean: float
    half: float

    @staticmethod
    def of(values: Sequence[float]) -> Estimate:
        """From one value per replication; of a single one, the width is not known: 0."""
        number = len(values)
        if number < 2:
            return Estimate(values[0], 0.0)
        return Estimate(fmean(values), _student(number - 1) * stdev(values) / sqrt(number))


@dataclass(frozen=True)
class Case:
    """A strategy with a number of virtual QPUs, and what was estimated."""

    policy: Policy
    replications: tuple[Figures, ...]

    def estimates(self) -> dict[str, Estimate]:
        """By the names of the figures."""
        names = [each.name for each in fields(Figures)]
        return {
            name: Estimate.of([getattr(each, name) for each in self.replications]) for name in names
        }


def _student(freedom: int) -> float:
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    return 1.95996 + 2.37227 / freedom + 2.8225 / freedom**2 + 2.5559 / freedom**3


def replicate(model: SiteModel, policy: Policy, replication: int) -> Figures:
    """One replication."""
    workload = Workload.of(model, replication)
    tally = Tally(model)
    stage = Stage(
        workload.model, policy, tally.ended, tally.started, workload.others(), tally.interrupted
    )
    with rare_collections():
        stage.play(workload.hybrids())
    tally.stage_ended(stage)
    return tally.figures()


def simulate(
    model: SiteModel,
    policies: Sequence[Policy],
    replications: int = 1,
    cores: int = 1,
    tell: Callable[[int, int], object] = lambda *_: None,
) -> list[Case]:
    """All cases; `tell` hears how many replications of how many are done."""
    work = [(model, policy, number) for policy in policies for number in range(replications)]
    found = []
    for figures in _computed(work, cores):
        found.append(figures)
        tell(len(found), len(work))
    return [
        Case(policy, tuple(found[place * replications : (place + 1) * replications]))
        for place, policy in enumerate(policies)
    ]


def _computed(work: list[tuple[SiteModel, Policy, int]], cores: int) -> Iterator[Figures]:
    if min(cores, len(work)) < 2:
        for each in work:
            yield replicate(*each)
        return
    with ProcessPoolExecutor(min(cores, len(work)), get_context("spawn")) as pool:
        yield from pool.map(replicate, *zip(*work, strict=True))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles rarely: a simulation creates many objects, and hardly any cycle."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
