"""k-means by scikit-learn, held to one thread so that equal seeds give equal clusters."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from qtide.apps.clustering.arrays import Labels, Points
from qtide.apps.clustering.threads import one_thread

MOST_ROUNDS = 200


def kmeans(points: Points, clusters: int, *, seed: int = 0) -> Labels:
    """Labels of Lloyd's k-means from one seeded k-means++ start."""
    if not 1 <= clusters <= len(points):
        raise ValueError(f"k-means cannot make {clusters} clusters of {len(points)} points.")
    model = KMeans(clusters, n_init=1, max_iter=MOST_ROUNDS, random_state=seed)
    with one_thread(), warnings.catch_warnings():
        # fewer distinct points than clusters: fewer clusters are returned, which is right
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(model.fit_predict(points), dtype=np.int64)
