"""Clustering aggregation: a QPU combines several clusterings of a point set into one consensus.

Each round runs the methods side by side on nodes, lets the QPU choose clusters that do not
overlap, and scores the consensus. Rounds repeat until the score reaches the threshold.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Interval

from qtide import classical, program, quantum, task
from qtide.apps.clustering import tasks
from qtide.apps.clustering.arrays import Labels, Points
from qtide.apps.clustering.configurations import (
    EXTRA_METHODS,
    MethodParameters,
    ParameterSearch,
    published_configuration,
)
from qtide.apps.clustering.consensus import Repair, consensus_labels, gap, repaired
from qtide.apps.clustering.linkage import LINKAGES, LinkageTree
from qtide.apps.clustering.overlap import OverlapGraph, overlap_graph, qubo
from qtide.apps.clustering.silhouette import equal_parts, merged_silhouette
from qtide.core.errors import UsageError

CHOICES: dict[str, Collection[str]] = {
    "weighting": ("quality", "published"),
    "configuration": ("search", "published"),
    "linkage": LINKAGES,
    "method": EXTRA_METHODS,
}


@dataclass(frozen=True)
class Round:
    """Results of one round."""

    setting: MethodParameters
    silhouette: float
    bound: float
    clusters: list[dict[str, Any]]
    repair: Repair
    gap: float


@program(nodes=3)
async def clustering(
    points: str = "",
    *,
    blobs: Annotated[int, Ge(0)] = 0,
    columns: list[str] = [],  # noqa: B006 - never changed
    threshold: Annotated[float, Interval(ge=-1, le=1)] = 0.8,
    most: Annotated[int, Ge(1)] = 10,
    weighting: str = "quality",
    configuration: str = "search",
    method: list[str] = [],  # noqa: B006 - never changed
    linkage: str = "single",
    parts: Annotated[int, Ge(0)] = 0,
    seed: int = 0,
    folder: Path = Path(),
) -> dict[str, Any]:
    """Cluster POINTS (.csv, .npy, .parquet), or the published data set of `blobs` points.

    `method` adds hdbscan or spectral; `linkage` is single, ward, centroid or median. With
    `parts`, that many tasks compute the exact silhouette; otherwise one task computes it as
    precisely as the threshold requires.
    """
    _check(weighting=[weighting], configuration=[configuration], linkage=[linkage], method=method)
    data = await task(tasks.load_points, points, blobs, columns)
    plan = None
    if configuration == "search":
        plan = await task(tasks.explore, data, seed, tuple(method))
    rounds: list[Round] = []
    labels: list[Labels] = []
    tree: LinkageTree | None = None
    for number in range(most):
        setting = _setting(plan, number, tuple(method))
        found, tree = await _clusterings(data, setting, seed, linkage, tree)
        graph = _graph(found, weighting)
        samples = await quantum(qubo(graph))
        answer = [node for node, taken in samples.first.sample.items() if taken]
        chosen, repair = repaired(graph, answer)
        labels.append(consensus_labels(data, graph, chosen))
        score = await _score(data, labels[-1], threshold, parts)
        clusters = [_cluster(graph, node) for node in chosen]
        figures = (score.silhouette, score.bound, clusters, repair, gap(graph, chosen))
        rounds.append(Round(setting, *figures))
        if score.silhouette >= threshold:
            break
    return await _conclude(data, labels, rounds, threshold, folder)


def _check(**given: list[str]) -> None:
    """Refuse unknown names before the first task."""
    for name, values in given.items():
        for value in values:
            if value not in CHOICES[name]:
                raise UsageError(f"--{name} is {' or '.join(CHOICES[name])}, not {value!r}")


def _setting(
    plan: ParameterSearch | None, number: int, extras: tuple[str, ...]
) -> MethodParameters:
    if plan is not None:
        return plan.configuration(number)
    return published_configuration(number, extras=extras)


async def _clusterings(
    data: Points, setting: MethodParameters, seed: int, linkage: str, tree: LinkageTree | None
) -> tuple[dict[str, tasks.Clustering], LinkageTree]:
    """Run the methods side by side, the slowest first."""
    linked: Any = task(tasks.by_linkage, data, setting, seed, linkage, tree)
    (by_linkage, tree), dbscan, kmeans, *extras = await classical(
        linked,
        task(tasks.by_dbscan, data, setting, seed),
        task(tasks.by_kmeans, data, setting, seed),
        *(task(tasks.by_extra, name, data, setting, seed) for name in setting.extras),
    )
    found = {"kmeans": kmeans, "dbscan": dbscan, "linkage": by_linkage}
    return found | dict(zip(setting.extras, extras, strict=True)), tree


def _graph(found: dict[str, tasks.Clustering], weighting: str) -> OverlapGraph:
    labels = {name: each.labels for name, each in found.items()}
    qualities = {name: each.qualities for name, each in found.items()}
    return overlap_graph(labels, qualities if weighting == "quality" else None)


async def _score(data: Points, labels: Labels, threshold: float, parts: int) -> tasks.Score:
    if not parts:
        found: tasks.Score = await task(tasks.score, data, labels, threshold)
        return found
    ranges = equal_parts(len(data), parts)
    sums = await classical(*(task(tasks.score_part, data, labels, *each) for each in ranges))
    return tasks.Score(merged_silhouette(sums), 0.0)


def _cluster(graph: OverlapGraph, node: int) -> dict[str, Any]:
    chosen = graph.nodes[node]
    return {"methods": list(chosen.methods), "size": chosen.size, "weight": chosen.weight}


async def _conclude(
    data: Points, labels: list[Labels], rounds: list[Round], threshold: float, folder: Path
) -> dict[str, Any]:
    best = max(range(len(rounds)), key=lambda number: rounds[number].silhouette)
    summary = {
        "points": len(data),
        "silhouette": rounds[best].silhouette,
        "passed": rounds[best].silhouette >= threshold,
        "best_round": best + 1,
        "rounds": [tasks.as_plain(each) for each in rounds],
    }
    files = await task(tasks.write_results, folder.absolute(), data, labels[best], summary)
    short = {key: value for key, value in summary.items() if key != "rounds"}
    scores = [round(each.silhouette, 6) for each in rounds]
    return short | {"scores": scores, "files": files}
