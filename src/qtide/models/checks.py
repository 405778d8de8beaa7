"""What cannot be in a site file although each value by itself can: a sentence for each mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qtide.models.faults import Loss
    from qtide.models.site import Background, SiteModel


def mistakes(model: SiteModel, table: dict[str, Any]) -> Iterator[str]:
    """All mistakes, by the model and by what the file itself says."""
    yield from _of_partitions(model, table)
    yield from _of_background("background", model.background)
    yield from _of_losses("losses", model.losses, model.nodes)
    for part in model.partitions:
        yield from _of_background(f"partitions.{part.name}.background", part.background)
        yield from _of_losses(f"partitions.{part.name}.losses", part.losses, part.nodes)
    if "hybrid" in table:
        yield from _of_hybrids(model)


def _of_partitions(model: SiteModel, table: dict[str, Any]) -> Iterator[str]:
    names = [part.name for part in model.partitions]
    for name, times in Counter(names).items():
        if times > 1:
            yield f"partitions: {times} of them are called {name!r}; give each a name of its own"
    for key in ("nodes", "background", "losses"):
        if names and key in table:
            yield f"{key}: each of the partitions has its own; remove it here"
    if names and not sum(part.hybrid for part in model.partitions):
        yield "partitions: no hybrid job comes to any of them; give one a hybrid above 0"


def _of_background(place: str, background: Background) -> Iterator[str]:
    if background.trace is not None and background.generate is not None:
        yield f"{place}: it is a trace or generated, not both; remove one"


def _of_losses(place: str, losses: tuple[Loss, ...], nodes: int) -> Iterator[str]:
    names = {f"n{number}" for number in range(1, nodes + 1)}
    for loss in losses:
        if loss.node not in names:
            yield f"{place}: there is no node {loss.node!r}; they are n1 to n{nodes}"


def _of_hybrids(model: SiteModel) -> Iterator[str]:
    mix = model.hybrid
    parts = zip(model.parts(), model.partitions, strict=False)
    homes = [home for home, part in parts if part.hybrid] or [model]
    least = min(home.nodes for home in homes)
    if mix.nodes > least and not mix.share:
        yield f"hybrid.nodes: a job of {mix.nodes} nodes does not fit on {least}; ask for fewer"
    if mix.share and not all(_has_jobs(home.background) for home in homes):
        yield "hybrid.share: there are no background jobs to take it from; add [background]"
    if mix.table and 1 not in mix.table:
        yield "hybrid.table: it has to say how long one node takes; add an entry for 1"
    if model.service is not None and mix.quantum > model.service.limit:
        limit = model.service.limit
        yield f"hybrid.quantum: {mix.quantum:g} s are more than the service's limit of {limit:g} s"


def _has_jobs(background: Background) -> bool:
    return background.trace is not None or background.generate is not None
