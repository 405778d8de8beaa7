"""Commands: 2,000 short ones beside GNU parallel and HyperQueue, and MPI steps beside StreamFlow.

The nodes are processes of this computer with one core: each has one command at a time. HyperQueue
has two workers of one core, GNU parallel two jobs. qtide keeps a journal, a log and a result for
every command; of these, HyperQueue is asked for none, and GNU parallel for the output. Then the
same MPI executable runs eight times in a row on two nodes of a real Slurm, by qtide's workflow
strategy and by StreamFlow from a CWL workflow; the steps note when they began and ended. It takes a
minute: python benchmarks/commands.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from claims import Claim, at_least, at_most, conclude
from workflow_engines import STEPS, Times, by_streamflow, gaps

from qtide import box, classical, command, program

COMMANDS = 2000
SHARE = 0.8
LIMIT = 300.0
PARALLEL = os.environ.get("GNU_PARALLEL", "parallel")
"""GNU parallel, a script of Perl; the variable PARALLEL holds options of its own."""

HYPERQUEUE = f"""
import sys, tempfile, time
from pathlib import Path
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with tempfile.TemporaryDirectory(prefix="qtide-hq-") as folder, LocalCluster(folder) as cluster:
    for _ in range(2):
        cluster.start_worker(WorkerConfig(cores=1))
    client, place = cluster.client(), Path(folder)
    job = Job(folder)
    for number in range({COMMANDS}):
        # each notes its end, since the client looks only once per second
        last = number == {COMMANDS} - 1
        text, file = ("date +%s.%N", place / "end") if last else ("true", None)
        job.program(["sh", "-c", text], stdout=file, stderr=None)
    began = time.time()
    client.wait_for_jobs([client.submit(job)])
    print({COMMANDS} / (float((place / "end").read_text()) - began))
"""
MPI = """#!{python}
import json, sys, time
from mpi4py import MPI
began = MPI.COMM_WORLD.allreduce(time.time(), MPI.MIN)
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps([began, time.time()]))
"""


@program
async def many() -> int:
    """Short commands, all at once."""
    done = await classical(*(command("sh", "-c", "true").needs(cores=1) for _ in range(COMMANDS)))
    return sum(each.exit_code == 0 for each in done)


@program
async def steps(executable: str) -> list[Times]:
    """An MPI executable on two nodes, several times in a row."""
    return [json.loads((await command(executable).on(2)).output) for _ in range(STEPS)]


def ours(runs: Path) -> float:
    """Commands per second of a phase, from its beginning to its record in the journal."""
    run = many.run(cluster="local:2", cores=1, runs=runs)
    assert run.value == COMMANDS
    spans = [each for each in run._run.intervals() if each.what == "phase"]
    return COMMANDS / sum(each.seconds for each in spans)


def by_parallel() -> float:
    """Commands per second of GNU parallel."""
    began = time.perf_counter()
    subprocess.run(
        [*PARALLEL.split(), "--will-cite", "-j2", "sh -c true {}"],
        input="\n".join(map(str, range(COMMANDS))).encode(),
        stdout=subprocess.DEVNULL,
        timeout=LIMIT,
        check=True,
    )
    return COMMANDS / (time.perf_counter() - began)


def by_hyperqueue() -> float:
    """Commands per second of HyperQueue."""
    words = [sys.executable, "-c", HYPERQUEUE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=True)
    return float(done.stdout.splitlines()[-1])


def mpi_steps(folder: Path) -> list[Claim]:
    """Steps of an MPI executable on a real Slurm."""
    executable = folder / "ranks"
    executable.write_text(MPI.format(python=sys.executable))
    executable.chmod(0o755)
    made = box.up(folder / "box", nodes=3)
    os.environ |= box.env(made.folder)
    try:
        run = steps.run(str(executable), cluster="slurm", strategy="workflow", runs=folder)
        own = median(gaps(run.value))
        print(f"qtide: {own:.3f} s from the end of an MPI step to the next")
        words = ["srun", "--mpi=pmi2", "--ntasks=2", str(executable)]
        theirs = median(gaps(by_streamflow(folder, words, nodes=2)))
        print(f"StreamFlow: {theirs:.3f} s")
        return [
            at_most("step to step of an MPI executable, ours / StreamFlow's", own / theirs, 1.0)
        ]
    finally:
        box.down(made.folder)


def main() -> None:
    """Measure all, print a table and one line of JSON."""
    with tempfile.TemporaryDirectory(prefix="qtide-") as folder:
        place = Path(folder)
        rates = {"qtide": max(ours(place) for _ in range(2)), "HyperQueue": by_hyperqueue()}
        if shutil.which(PARALLEL.split()[0]):
            rates["GNU parallel"] = by_parallel()
        else:
            print("GNU parallel: not installed (apt-get install parallel)")
        for name, rate in rates.items():
            print(f"{name}: {rate:.0f} commands per second")
        best = max(rate for name, rate in rates.items() if name != "qtide")
        claims = [
            at_least("commands per second, of the better peer's", rates["qtide"] / best, SHARE)
        ]
        conclude("commands", [*claims, *mpi_steps(place)])


if __name__ == "__main__":
    main()
