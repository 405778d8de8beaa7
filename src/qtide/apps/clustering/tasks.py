"""The tasks of the application, which run on nodes; each imports its libraries when called."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qtide.apps.clustering.arrays import Labels, Numbers, Points, compacted
from qtide.apps.clustering.configurations import Configuration, Search, search
from qtide.apps.clustering.points import PointsError, blobs, read_points
from qtide.apps.clustering.tree import LinkageTree
from qtide.system.files import write_json


@dataclass(frozen=True)
class Clustering:
    """A partition by one method, and how good each of its clusters is."""

    labels: Labels
    qualities: Numbers


@dataclass(frozen=True)
class Score:
    """A silhouette and a bound on its error."""

    silhouette: float
    bound: float


def load_points(file: str, generated: int, columns: list[str]) -> Points:
    """The points of a file, or the published data set with this many points."""
    if bool(file) == bool(generated):
        raise PointsError("give either a file of points, or --blobs with a number of points")
    if generated:
        return blobs(generated)
    places = [int(each) if each.lstrip("-").isdecimal() else each for each in columns]
    return read_points(file, places or None)


def explore(points: Points, seed: int, extras: tuple[str, ...]) -> Search:
    """The configurations to try, at the data's own scale."""
    return search(points, seed=seed, extras=extras)


def by_kmeans(points: Points, setting: Configuration, seed: int) -> Clustering:
    """Cluster by k-means."""
    from qtide.apps.clustering.kmeans import kmeans

    return _judged(points, kmeans(points, min(setting.kmeans, len(points)), seed=seed), seed)


def by_dbscan(points: Points, setting: Configuration, seed: int) -> Clustering:
    """Cluster by density."""
    from qtide.apps.clustering.dbscan import dbscan

    return _judged(points, dbscan(points, setting.eps, setting.min_samples), seed)


def by_linkage(
    points: Points, setting: Configuration, seed: int, linkage: str, tree: LinkageTree | None
) -> tuple[Clustering, LinkageTree]:
    """Cluster by linkage; the tree is built the first time only."""
    from qtide.apps.clustering.linkage import cut, linkage_tree

    tree = tree or linkage_tree(points, linkage)
    labels = cut(tree, min(setting.linkage, len(points)))
    return _judged(points, labels, seed), tree


def by_extra(name: str, points: Points, setting: Configuration, seed: int) -> Clustering:
    """Cluster by an extra method that the user chose."""
    from qtide.apps.clustering.methods import extra_clustering

    return _judged(points, extra_clustering(name, points, setting, seed=seed), seed)


def score(points: Points, labels: Labels, threshold: float) -> Score:
    """The silhouette, exact enough to tell on which side of the threshold it is."""
    from qtide.apps.clustering.farfield import reaches

    _, found = reaches(points, labels, threshold)
    return Score(found.score, found.bound)


def score_part(points: Points, labels: Labels, start: int, stop: int) -> Numbers:
    """The exact silhouettes of a part of the points."""
    from qtide.apps.clustering.silhouette import silhouette_part

    return silhouette_part(points, labels, start, stop)


def write_results(
    folder: Path, points: Points, labels: Labels, summary: dict[str, Any]
) -> list[str]:
    """Write labels, scores, chosen clusters and a picture to the run's folder."""
    from qtide.apps.clustering.picture import draw_clusters

    np.save(folder / "labels.npy", labels)
    np.savetxt(folder / "labels.csv", labels, fmt="%d", header="cluster", comments="")
    write_json(folder / "iterations.json", summary)
    draw_clusters(folder / "clusters.png", points, labels, score=summary["silhouette"])
    return ["labels.npy", "labels.csv", "iterations.json", "clusters.png"]


def as_plain(record: Any) -> dict[str, Any]:
    """A record in a form that JSON takes."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record)))
    return plain


def _judged(points: Points, labels: Labels, seed: int) -> Clustering:
    """The clusters with their qualities. Also loads the libraries that other tasks will need.

    A node's first task is the slowest anyway; so no later one waits for a library.
    """
    import matplotlib.figure  # noqa: F401 - for the picture
    import sklearn.cluster  # noqa: F401 - for k-means

    from qtide.apps.clustering import dbscan, farfield, linkage  # noqa: F401 - for the others
    from qtide.apps.clustering.quality import cluster_qualities

    compact, _ = compacted(labels)
    return Clustering(compact, cluster_qualities(points, compact, seed=seed))
