"""The clustering aggregation as an MPI program: expand, classical, minimise, quantum.

python examples/mpi/aggregation.py --points 4000 --seconds 5
python examples/mpi/aggregation.py --qpu http://127.0.0.1:8037/annealer    # at a vQPU service
"""

import argparse
import time
from typing import Any

import qtide
from qtide.apps.clustering import tasks
from qtide.apps.clustering.configurations import published_configuration
from qtide.apps.clustering.consensus import consensus_labels, repaired
from qtide.apps.clustering.overlap import overlap_graph, qubo
from qtide.malleable import Job

METHODS = ("linkage", "dbscan", "kmeans")


def clustered(name: str, data: Any, setting: Any) -> Any:
    """One method's clustering."""
    if name == "linkage":
        return tasks.by_linkage(data, setting, 0, "single", None)[0]
    return getattr(tasks, f"by_{name}")(data, setting, 0)


def sampled(problem: Any, options: argparse.Namespace, job: Job) -> Any:
    """The answer of the QPU: of a service, or one that is emulated here."""
    if options.qpu:
        url, _, device = options.qpu.rpartition("/")
        return qtide.qpu(device, url=url).run(problem)
    from dwave.samplers import SimulatedAnnealingSampler  # the root alone needs it

    end = time.monotonic() + options.seconds
    samples = SimulatedAnnealingSampler().sample(problem, num_reads=20, seed=0)
    time.sleep(max(0.0, end - job.lead - time.monotonic()))
    if not options.static and job.state.round + 1 < options.rounds:
        job.expand(wait=0)  # its nodes start now, and are there when the answer is
    time.sleep(max(0.0, end - time.monotonic()))
    return samples


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--points", type=int, default=4000)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=float, default=2.0, help="of the emulated quantum phase")
parser.add_argument("--nodes", type=int, default=3)
parser.add_argument("--static", action="store_true", help="keep all nodes, for comparison")
parser.add_argument("--qpu", default="")
options = parser.parse_args()

with Job(most=options.nodes) as job:
    job.begin(round=0, best=-1.0)
    data = tasks.load_points("", options.points, [])
    while job.state.round < options.rounds:
        job.expand(wait=30)

        setting = published_configuration(job.state.round)
        mine = METHODS[job.rank :: job.size]
        found = {name: clustered(name, data, setting) for name in mine}
        parts = job.comm.gather(found)

        if not options.static:
            job.minimise()

        if job.root:
            assert parts is not None
            merged = {name: part[name] for part in parts for name in part}
            labels = {name: merged[name].labels for name in METHODS}
            graph = overlap_graph(labels, {name: merged[name].qualities for name in METHODS})
            samples = sampled(qubo(graph), options, job)
            chosen, _ = repaired(graph, [n for n, on in samples.first.sample.items() if on])
            score = tasks.score(data, consensus_labels(data, graph, chosen), 0.8)
            job.state.best = max(job.state.best, score.silhouette)
            print(f"round {job.state.round + 1}: silhouette {score.silhouette:.4f}", flush=True)
        job.state.round += 1
