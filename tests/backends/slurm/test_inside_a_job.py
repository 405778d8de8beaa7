from __future__ import annotations

import sys
from pathlib import Path

from tests.backends.slurm.stage import Stage, until

DRIVER = """#!{python}
import os, sys
sys.path[:0] = {path}
from pathlib import Path
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from tests.backends.slurm.stage import Stage, run
from tests.backends.slurm.test_cluster import place

async def scene(cluster):
    job = stage.job()
    allocation = await cluster.request(job, 2)
    return [await run(node, job, place) for node in allocation.nodes]

stage = Stage(Path(os.environ["SLURM_CONF"]), Path({folder!r}))
print(os.environ["SLURMD_NODENAME"], *stage.play(scene))
"""


def test_a_driver_within_a_job_grows_beyond_it(stage: Stage) -> None:
    script, output = stage.folder / "driver.py", stage.folder / "output"
    path = [str(Path(each).absolute()) for each in sys.path]
    script.write_text(DRIVER.format(python=sys.executable, path=path, folder=str(stage.folder)))
    stage.slurm("sbatch", "-N1", "-t2", f"--output={output}", str(script))
    assert until(lambda: stage.idle() == 3 and output.exists())
    home, *others = output.read_text().split()
    assert sorted([home, *others]) == ["c1", "c2", "c3"]
