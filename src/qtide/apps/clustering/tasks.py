"""Tasks that run on nodes; each imports its libraries when called."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qtide.apps.clustering.arrays import Indices, Labels, Numbers, Points, compacted
from qtide.apps.clustering.configurations import MethodParameters, ParameterSearch, search
from qtide.apps.clustering.linkage import LinkageTree
from qtide.apps.clustering.points import PointsError, blobs, read_points
from qtide.core.files import write_json


@dataclass(frozen=True)
class Clustering:
    """A partition by one method, and the quality of each of its clusters."""

    labels: Labels
    qualities: Numbers


@dataclass(frozen=True)
class Score:
    """A silhouette and a bound on its error."""

    silhouette: float
    bound: float


def load_points(file: str, generated: int, columns: list[str]) -> Points:
    """Read the points from a file, or generate the published data set with that many points."""
    if bool(file) == bool(generated):
        raise PointsError("give either a file of points, or --blobs with a number of points")
    if generated:
        return blobs(generated)
    places = [int(each) if each.lstrip("-").isdecimal() else each for each in columns]
    return read_points(file, places or None)


def explore(points: Points, seed: int, extras: tuple[str, ...]) -> ParameterSearch:
    """Choose the configurations to try from the data's scale."""
    return search(points, seed=seed, extras=extras)


def by_kmeans(points: Points, setting: MethodParameters, seed: int) -> Clustering:
    """Cluster by k-means."""
    from qtide.apps.clustering.methods import kmeans

    return _judged(points, kmeans(points, min(setting.kmeans, len(points)), seed=seed), seed)


def by_dbscan(points: Points, setting: MethodParameters, seed: int) -> Clustering:
    """Cluster by DBSCAN."""
    from qtide.apps.clustering.dbscan import dbscan

    return _judged(points, dbscan(points, setting.eps, setting.min_samples), seed)


def by_linkage(
    points: Points, setting: MethodParameters, seed: int, linkage: str, tree: LinkageTree | None
) -> tuple[Clustering, LinkageTree]:
    """Cluster by linkage; build the tree only if it is not given."""
    from qtide.apps.clustering.linkage import cut, linkage_tree

    tree = tree or linkage_tree(points, linkage)
    labels = cut(tree, min(setting.linkage, len(points)))
    return _judged(points, labels, seed), tree


def by_extra(name: str, points: Points, setting: MethodParameters, seed: int) -> Clustering:
    """Cluster by an extra method chosen by the user."""
    from qtide.apps.clustering.methods import extra_clustering

    return _judged(points, extra_clustering(name, points, setting, seed=seed), seed)


def _judged(points: Points, labels: Labels, seed: int) -> Clustering:
    """Add the clusters' qualities, and load the libraries that other tasks will need.

    A node's first task is the slowest anyway; this way, no later task waits for a library.
    """
    import matplotlib.figure  # noqa: F401 - for the picture
    import sklearn.cluster  # noqa: F401 - for k-means

    from qtide.apps.clustering.silhouette import cluster_qualities

    compact, _ = compacted(labels)
    return Clustering(compact, cluster_qualities(points, compact, seed=seed))


def score(points: Points, labels: Labels, threshold: float) -> Score:
    """Compute the silhouette precisely enough to decide whether it reaches the threshold."""
    from qtide.apps.clustering.farfield import reaches

    _, found = reaches(points, labels, threshold)
    return Score(found.score, found.bound)


def score_part(points: Points, labels: Labels, start: int, stop: int) -> Numbers:
    """Compute the exact silhouettes of a part of the points."""
    from qtide.apps.clustering.silhouette import silhouette_part

    return silhouette_part(points, labels, start, stop)


def write_results(
    folder: Path, points: Points, labels: Labels, summary: dict[str, Any]
) -> list[str]:
    """Write labels, scores, chosen clusters and a picture to the run's folder."""

    np.save(folder / "labels.npy", labels)
    np.savetxt(folder / "labels.csv", labels, fmt="%d", header="cluster", comments="")
    write_json(folder / "iterations.json", summary)
    draw_clusters(folder / "clusters.png", points, labels, score=summary["silhouette"])
    return ["labels.npy", "labels.csv", "iterations.json", "clusters.png"]


def as_plain(record: Any) -> dict[str, Any]:
    """Convert a record to a form that JSON can represent."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record)))
    return plain


MOST_DRAWN = 20_000
MOST_NAMED = 20
COLOURS = (0, 2, 4, 6, 8, 10, 12, 16, 18)  # of tab20, each with a light variant next; 14 is grey


def draw_clusters(path: str | Path, points: Points, labels: Labels, *, score: float) -> None:
    """Write a PNG of the first two dimensions, or of a single dimension by point number."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    clusters, sizes = np.unique(labels, return_counts=True)
    drawn = _subsample(len(points))
    for number, (cluster, size) in enumerate(zip(clusters, sizes, strict=True)):
        rows = drawn[labels[drawn] == cluster]
        name = "noise" if cluster < 0 else f"{cluster}"
        axes.scatter(
            points[rows, 0],
            points[rows, 1] if points.shape[1] > 1 else rows,
            s=max(2.0, 30.0 - len(drawn) / 500),
            color=_colour(int(cluster), number),
            linewidths=0,
            alpha=0.7,
            label=f"{name}: {size:,} points",
        )
    axes.set_title(_title(points, clusters, score))
    axes.set_xlabel("dimension 1" if points.shape[1] > 1 else "value")
    axes.set_ylabel("dimension 2" if points.shape[1] > 1 else "point")
    if len(clusters) <= MOST_NAMED:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, markerscale=3)
    figure.savefig(path, format="png")


def _subsample(number: int) -> Indices:
    """Choose at most MOST_DRAWN seeded rows; more would only darken the picture."""
    if number <= MOST_DRAWN:
        return np.arange(number)
    return np.sort(np.random.default_rng(0).choice(number, MOST_DRAWN, replace=False))


def _colour(cluster: int, number: int) -> str | tuple[float, float, float, float]:
    """Pick grey for noise, otherwise a colour that adjacent numbers do not share."""
    from matplotlib import colormaps

    if cluster < 0:
        return "0.6"
    strong, light = divmod(number, len(COLOURS))[::-1]
    return colormaps["tab20"](COLOURS[strong] + light % 2)


def _title(points: Points, clusters: Labels, score: float) -> str:
    return f"Consensus: {len(points):,} points, {len(clusters)} clusters, silhouette {score:.4f}"
