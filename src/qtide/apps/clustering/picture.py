"""A scatter plot of labelled points, so that a person can judge a consensus at a glance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qtide.apps.clustering.arrays import Indices, Labels, Points

MOST_DRAWN = 20_000
MOST_NAMED = 20
COLOURS = (0, 2, 4, 6, 8, 10, 12, 16, 18)  # of tab20, a light one behind each; 14 is grey


def draw_clusters(path: str | Path, points: Points, labels: Labels, *, score: float) -> None:
    """Write a PNG of the first two dimensions, or of a single one against the point number."""
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
    """At most MOST_DRAWN seeded rows: more would only darken the picture."""
    if number <= MOST_DRAWN:
        return np.arange(number)
    return np.sort(np.random.default_rng(0).choice(number, MOST_DRAWN, replace=False))


def _colour(cluster: int, number: int) -> str | tuple[float, float, float, float]:
    """Grey for noise, otherwise a colour that adjacent numbers do not share."""
    from matplotlib import colormaps

    if cluster < 0:
        return "0.6"
    strong, light = divmod(number, len(COLOURS))[::-1]
    return colormaps["tab20"](COLOURS[strong] + light % 2)


def _title(points: Points, clusters: Labels, score: float) -> str:
    return f"Consensus: {len(points):,} points, {len(clusters)} clusters, silhouette {score:.4f}"
