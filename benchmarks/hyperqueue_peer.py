"""HyperQueue as dispatcher of the same bursts: one worker with one core is the device.

Its tasks are processes, and nothing is durable. The tasks record their times themselves, since its
client polls only once per second. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from hyperqueue import Client, Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

NOW = "date +%s.%N"


def times(client: Client, folder: Path, script: str, tasks: int) -> list[list[float]]:
    """When each task began and, if recorded, ended, in the order in which they began."""
    job = Job(folder)
    for number in range(tasks):
        job.program(["sh", "-c", script], stdout=folder / f"{number}.out", stderr=None)
    client.wait_for_jobs([client.submit(job)])
    texts = ((folder / f"{number}.out").read_text() for number in range(tasks))
    return sorted([float(word) for word in text.split()] for text in texts)


def measured(burst: float, tasks: int) -> dict[str, float]:
    """The median gap between two queued tasks, and empty tasks per second."""
    with (
        tempfile.TemporaryDirectory(prefix="qtide-hq-") as folder,
        LocalCluster(folder, WorkerConfig(cores=1)) as cluster,
    ):
        client, place = cluster.client(), Path(folder)
        bursts = times(client, place, f"{NOW}; sleep {burst}; {NOW}", tasks)
        gaps = [after[0] - before[1] for before, after in pairwise(bursts)]
        empty = times(client, place, NOW, tasks)
        return {"gap": median(gaps), "rate": tasks / (empty[-1][0] - empty[0][0])}


if __name__ == "__main__":
    result = measured(float(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(result))
