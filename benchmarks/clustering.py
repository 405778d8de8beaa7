"""What the clustering application costs and yields, compared with scikit-learn in the same run.

Each timed iteration runs alone in a fresh process on one thread. Its memory is the peak above
that of the imported libraries.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from claims import Claim, conclude
from dwave.samplers import SimulatedAnnealingSampler

from qtide.apps.clustering.arrays import Labels, Points
from qtide.apps.clustering.configurations import MethodParameters, published_configuration, search
from qtide.apps.clustering.consensus import best_independent_set, consensus_labels, repaired
from qtide.apps.clustering.dbscan import dbscan
from qtide.apps.clustering.farfield import certified_silhouette
from qtide.apps.clustering.linkage import cut, linkage_tree
from qtide.apps.clustering.methods import clusterings, kmeans
from qtide.apps.clustering.overlap import OverlapGraph, overlap_graph, qubo
from qtide.apps.clustering.points import blobs
from qtide.apps.clustering.silhouette import qualities, silhouette

ITERATION = 1  # k-means 9, eps 1.603: the first of the published iterations that can pass 0.8
THRESHOLD = 0.8
SEEDS = (0, 1, 2)
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}

Solver = Callable[[OverlapGraph, int], tuple[int, ...]]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of one call."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print aligned columns."""
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    print(f"\n{title}")
    for row in [header, ["-" * width for width in widths], *rows]:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )


def exact_solver(graph: OverlapGraph, _: int) -> tuple[int, ...]:
    """The classical optimum, made maximal."""
    return repaired(graph, best_independent_set(graph.weights, graph.overlaps))[0]


def annealer(graph: OverlapGraph, seed: int) -> tuple[int, ...]:
    """The best of 100 reads of the simulated annealer, repaired."""
    sampler = SimulatedAnnealingSampler()
    sample = sampler.sample(qubo(graph), num_reads=100, num_sweeps=200, seed=seed).first.sample
    return repaired(graph, [node for node, chosen in sample.items() if chosen])[0]


SOLVERS: dict[str, Solver] = {"exact optimum": exact_solver, "annealer": annealer}


# One iteration, in a process of its own ---------------------------------------------------------


def own_methods(points: Points, configuration: MethodParameters) -> dict[str, Labels]:
    """The three methods by this application's kernels, including the tree."""
    return clusterings(points, configuration, linkage_tree(points))


def peer_methods(points: Points, configuration: MethodParameters) -> dict[str, Labels]:
    """The three methods as scikit-learn offers them."""
    from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans

    models = {
        "kmeans": KMeans(configuration.kmeans, n_init=1, random_state=0, max_iter=200),
        "dbscan": DBSCAN(eps=configuration.eps, min_samples=configuration.min_samples, n_jobs=1),
        "linkage": AgglomerativeClustering(configuration.linkage, linkage="single"),
    }
    return {name: np.asarray(model.fit_predict(points)) for name, model in models.items()}


def peer_silhouette(points: Points, labels: Labels) -> float:
    """The silhouette of scikit-learn."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, labels))


SCORERS: dict[str, Callable[[Points, Labels], float]] = {
    "exact": silhouette,
    "certified": lambda points, labels: certified_silhouette(points, labels).score,
    "scikit-learn": peer_silhouette,
}


def iteration(kind: str, points: Points) -> dict[str, float]:
    """The seconds of each part of one iteration, and its score."""
    methods = peer_methods if kind == "scikit-learn" else own_methods
    configuration = published_configuration(ITERATION)
    first, found = timed(lambda: methods(points, configuration))
    second, labels = timed(lambda: _consensus(points, found))
    third, score = timed(lambda: SCORERS[kind](points, labels))
    parts = {"methods": first, "QUBO": second, "silhouette": third}
    return {**parts, "whole": sum(parts.values()), "score": score}


def _consensus(points: Points, found: dict[str, Labels]) -> Labels:
    graph = overlap_graph(found, qualities(points, found))
    qubo(graph)
    return consensus_labels(points, graph, exact_solver(graph, 0))


def megabytes(what: str) -> float:
    """This process's memory now (VmRSS), or its peak since that was last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def run_part(kind: str, points: int, repeats: int) -> None:
    """The child process: load all kernels on a few points, then measure."""
    data = blobs(points)
    iteration(kind, data[:300])
    before = megabytes("VmRSS")
    # ru_maxrss would not do: it includes the parent's memory from before this program started
    Path("/proc/self/clear_refs").write_text("5")
    runs = [iteration(kind, data) for _ in range(repeats)]
    peak = megabytes("VmHWM") - before
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    print(json.dumps({**median, "megabytes": peak}))


def in_process(kind: str, points: int, repeats: int) -> dict[str, float]:
    """The measurements of a fresh process."""
    command = [sys.executable, __file__, "--part", kind, str(points), str(repeats)]
    result = subprocess.run(
        command, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=True
    )
    measured: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return measured


def cost(points: int) -> list[Claim]:
    """One whole iteration by this application, with either silhouette, and by scikit-learn."""
    for kind in ("exact", "certified"):
        in_process(kind, 1000, 1)  # fills the cache of compiled kernels
    runs = {
        "exact": in_process("exact", points, 3),
        "certified": in_process("certified", points, 3),
        "scikit-learn": in_process("scikit-learn", points, 1),
    }
    columns = ["methods", "QUBO", "silhouette", "whole", "megabytes", "score"]
    rows = [[kind, *(f"{run[name]:.4g}" for name in columns)] for kind, run in runs.items()]
    table(f"One iteration, {points:,} points, one core (s, MB)", ["", *columns], rows)
    exact, certified, peer = runs.values()
    ratio = peer["whole"] / exact["whole"]
    apart = abs(exact["score"] - certified["score"])
    return [
        Claim("iteration, exact silhouette, s", exact["whole"], "<= 8", exact["whole"] <= 8),
        Claim("its peak memory, MB", exact["megabytes"], "<= 300", exact["megabytes"] <= 300),
        Claim("scikit-learn's iteration, s", peer["whole"], "shown", True),
        Claim("times faster than scikit-learn", ratio, ">= 15", ratio >= 15),
        Claim("iteration, certified, s", certified["whole"], "<= 2", certified["whole"] <= 2),
        Claim("certified from exact score", apart, "<= 1e-6", apart <= 1e-6),
    ]


# Growth -----------------------------------------------------------------------------------------


def growth(sizes: list[int]) -> list[Claim]:
    """The seconds of each kernel by number of points, and the exponent of their growth."""
    seconds: dict[str, list[float]] = {}
    kernel_seconds(blobs(1000))  # loads the compiled kernels
    for size in sizes:
        for name, taken in kernel_seconds(blobs(size)).items():
            seconds.setdefault(name, []).append(taken)
    exponents = {
        name: float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])
        for name, taken in seconds.items()
    }
    rows = [
        [name, *(f"{value:.3g}" for value in taken), f"{exponents[name]:.2f}"]
        for name, taken in seconds.items()
    ]
    table("Growth (s)", ["kernel", *(f"{size:,}" for size in sizes), "exponent"], rows)
    return [Claim(f"exponent of {name}", value, "shown", True) for name, value in exponents.items()]


def kernel_seconds(points: Points) -> dict[str, float]:
    """The seconds of each kernel on these points."""
    configuration = published_configuration(ITERATION)
    seconds: dict[str, float] = {}

    def note(name: str, work: Callable[[], Any]) -> Any:
        first, result = timed(work)
        seconds[name] = min(first, timed(work)[0])  # the machine may have other work
        return result

    note("k-means", lambda: kmeans(points, configuration.kmeans))
    note("DBSCAN", lambda: dbscan(points, configuration.eps, configuration.min_samples))
    tree = note("spanning tree", lambda: linkage_tree(points))
    note("cut of the tree", lambda: cut(tree, configuration.linkage))
    found = clusterings(points, configuration, tree)
    graph = note("overlap graph", lambda: overlap_graph(found, qualities(points, found)))
    labels = consensus_labels(points, graph, exact_solver(graph, 0))
    note("exact silhouette", lambda: silhouette(points, labels))
    note("certified silhouette", lambda: certified_silhouette(points, labels))
    return seconds


# Quality of the consensus -----------------------------------------------------------------------


def weightings(count: int) -> list[Claim]:
    """Scores for both weightings, both solvers and several seeds over the published iterations."""
    points = blobs(count)
    tree = linkage_tree(points)
    scores: dict[tuple[int, str, str], list[float]] = {}
    bound = 0.0
    for seed in SEEDS:
        for number in range(10):
            found = clusterings(points, published_configuration(number), tree, seed=seed)
            judged = qualities(points, found, seed=seed)
            for weighting in ("published", "quality"):
                graph = overlap_graph(found, judged if weighting == "quality" else None)
                for solver, solve in SOLVERS.items():
                    labels = consensus_labels(points, graph, solve(graph, seed))
                    certified = certified_silhouette(points, labels)
                    bound = max(bound, certified.bound)
                    scores.setdefault((seed, solver, weighting), []).append(certified.score)
    rows = [
        [f"seed {seed}, {solver}, {weighting}", *(f"{score:.3f}" for score in values)]
        for (seed, solver, weighting), values in scores.items()
    ]
    header = ["iteration", *(str(number) for number in range(10))]
    table(f"Silhouette of the consensus, {count:,} points", header, rows)
    return [
        *_weighting_claims(scores),
        Claim("greatest certified bound", bound, "<= 1e-6", bound <= 1e-6),
    ]


def _weighting_claims(scores: dict[tuple[int, str, str], list[float]]) -> list[Claim]:
    claims = []
    for solver in SOLVERS:
        passed, margins = [], []
        for seed in SEEDS:
            quality = scores[seed, solver, "quality"]
            published = scores[seed, solver, "published"]
            passing = (number for number, score in enumerate(quality, 1) if score >= THRESHOLD)
            passed.append(next(passing, math.inf))
            margins += [one - other for one, other in zip(quality, published, strict=True)]
        slowest, least = max(passed), min(margins)
        what = f"iterations until quality passes {THRESHOLD}, slowest seed, {solver}"
        claims.append(Claim(what, slowest, "<= 2", slowest <= 2))
        what = f"least lead of quality over published, {solver}"
        claims.append(Claim(what, least, ">= 0 within 1e-6", least >= -1e-6))
    return claims


def toy_sets() -> dict[str, tuple[Points, Labels]]:
    """Six well-known sets with their true classes."""
    from sklearn import datasets
    from sklearn.decomposition import PCA

    blob_points, blob_labels = datasets.make_blobs(1000, random_state=170)
    iris, digits = datasets.load_iris(), datasets.load_digits()
    plane = PCA(2, random_state=0).fit_transform(digits.data)
    return {
        "moons": datasets.make_moons(1000, noise=0.05, random_state=0),
        "circles": datasets.make_circles(1000, factor=0.5, noise=0.05, random_state=0),
        "varied": datasets.make_blobs(1000, cluster_std=[1.0, 2.5, 0.5], random_state=170),
        "anisotropic": (blob_points @ np.array([[0.6, -0.6], [-0.4, 0.8]]), blob_labels),
        "iris": (iris.data, iris.target),
        "digits, 2-D": (np.asarray(plane, dtype=np.float64), digits.target),
    }


def toys(iterations: int) -> list[Claim]:
    """The best consensus by silhouette and the best of each method, on six toy sets."""
    rows, leads = [], []
    for name, (points, truth) in toy_sets().items():
        best = toy_scores(points, truth, iterations)
        rows.append([name, *(f"{rand:.2f} / {score:.2f}" for score, rand in best.values())])
        leads.append(best["consensus"][0] - max(score for score, _ in list(best.values())[:-1]))
    header = ["", "k-means", "DBSCAN", "single linkage", "consensus"]
    title = f"Adjusted Rand index / silhouette, best by silhouette of {iterations} iterations"
    table(title, header, rows)
    what = "consensus minus best single method by silhouette, least of 6 toy sets"
    return [Claim(what, min(leads), "reported for 6", len(leads) == 6)]


def toy_scores(points: Points, truth: Labels, iterations: int) -> dict[str, tuple[float, float]]:
    """For each method and the consensus, the best silhouette and the Rand index at it."""
    from sklearn.metrics import adjusted_rand_score

    tree, plan = linkage_tree(points), search(points)
    best: dict[str, tuple[float, float]] = {}
    for number in range(iterations):
        found = clusterings(points, plan.configuration(number), tree, seed=number)
        graph = overlap_graph(found, qualities(points, found))
        found["consensus"] = consensus_labels(points, graph, exact_solver(graph, 0))
        for name, labels in found.items():
            result = silhouette(points, labels), float(adjusted_rand_score(truth, labels))
            best[name] = max(best.get(name, (-math.inf, 0.0)), result)
    return best


def main() -> None:
    """Measure, print the tables, and end with one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the points")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        kind, points, repeats = arguments.part
        run_part(kind, int(points), int(repeats))
        return
    os.environ.update(ONE_THREAD)
    scale = 10 if arguments.quick else 1
    claims = cost(80_000 // scale)
    claims += growth([size // scale for size in (20_000, 40_000, 80_000, 160_000)])
    claims += weightings(80_000 // scale)
    claims += toys(10)
    conclude("clustering", claims)


if __name__ == "__main__":
    main()
