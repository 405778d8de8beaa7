"""The clustering methods: three in every iteration, and extra ones on request."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from qtide.apps.clustering.arrays import Indices, Labels, Points
from qtide.apps.clustering.configurations import MethodParameters
from qtide.apps.clustering.dbscan import dbscan
from qtide.apps.clustering.linkage import LinkageTree, cut
from qtide.core.errors import UsageError


def one_thread() -> AbstractContextManager[object]:
    """Limit BLAS and OpenMP pools to one thread within a context."""
    return cast("AbstractContextManager[object]", threadpool_limits(1))


MOST_ROUNDS = 200


def kmeans(points: Points, clusters: int, *, seed: int = 0) -> Labels:
    """Cluster by Lloyd's k-means from one seeded k-means++ start."""
    if not 1 <= clusters <= len(points):
        raise ValueError(f"k-means cannot make {clusters} clusters of {len(points)} points.")
    model = KMeans(clusters, n_init=1, max_iter=MOST_ROUNDS, random_state=seed)
    with one_thread(), warnings.catch_warnings():
        # With fewer distinct points than clusters, k-means rightly returns fewer clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit_predict(points), dtype=np.int64)


MOST_HDBSCAN = 10_000  # points; its time is quadratic
MOST_SPECTRAL = 2_000  # points; its eigenvectors take more than linear memory and time

Extra = Callable[[Points, MethodParameters, int], Labels]


def clusterings(
    points: Points, configuration: MethodParameters, tree: LinkageTree, *, seed: int = 0
) -> dict[str, Labels]:
    """Run every method of one iteration; return the labels by method."""
    number = len(points)
    found = {
        "kmeans": kmeans(points, min(configuration.kmeans, number), seed=seed),
        "dbscan": dbscan(points, configuration.eps, configuration.min_samples),
        "linkage": cut(tree, min(configuration.linkage, number)),
    }
    for name in configuration.extras:
        found[name] = extra_clustering(name, points, configuration, seed=seed)
    return found


def extra_clustering(
    name: str, points: Points, configuration: MethodParameters, *, seed: int = 0
) -> Labels:
    """Cluster by one extra method.

    If there are too many points for the method, run it on a seeded sample and give every other
    point the label of the nearest sampled one.
    """
    if name not in EXTRAS:
        known = ", ".join(sorted(EXTRAS))
        raise UsageError(f"There is no clustering method '{name}'; the extra ones are {known}.")
    method, most = EXTRAS[name]
    if len(points) <= most:
        return method(points, configuration, seed)
    sample = np.sort(np.random.default_rng(seed).choice(len(points), most, replace=False))
    return _spread(points, sample, method(points[sample], configuration, seed))


def _spread(points: Points, sample: Indices, labels: Labels) -> Labels:
    """Give every point the label of the nearest sampled point."""
    from scipy.spatial import KDTree

    _, nearest = KDTree(points[sample]).query(points)
    spread: Labels = labels[nearest]
    return spread


def _hdbscan(points: Points, configuration: MethodParameters, _: int) -> Labels:
    from sklearn.cluster import HDBSCAN

    smallest = max(2, min(configuration.min_samples, len(points) // 2))
    model = HDBSCAN(min_cluster_size=smallest, algorithm="kd_tree", n_jobs=1, copy=True)
    with one_thread():
        return np.asarray(model.fit_predict(points), dtype=np.int64)


def _spectral(points: Points, configuration: MethodParameters, seed: int) -> Labels:
    from sklearn.cluster import SpectralClustering

    model = SpectralClustering(
        min(configuration.kmeans, len(points) - 1),
        affinity="nearest_neighbors",
        n_neighbors=min(configuration.min_samples, len(points)),
        assign_labels="cluster_qr",
        random_state=seed,
        n_jobs=1,
    )
    with one_thread(), warnings.catch_warnings():
        # A graph in several pieces is a clustering, not an error.
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return np.asarray(model.fit_predict(points), dtype=np.int64)


EXTRAS: dict[str, tuple[Extra, int]] = {
    "hdbscan": (_hdbscan, MOST_HDBSCAN),
    "spectral": (_spectral, MOST_SPECTRAL),
}
