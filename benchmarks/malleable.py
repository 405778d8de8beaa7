"""How fast an MPI program grows and shrinks on a real Slurm, and moves its data.

Programs in Python and in C. The peers, in the same run: a plain start of numpy and mpi4py, without
which no process can join, and of MPI in C; a plain Alltoallv of the same data; mpi4py's own
operations; and the same program on a fixed number of nodes. The published library for malleable MPI
programs (DMR) took 2.0 to 2.5 s per iteration, and 0.9 % more wall time. Run it on a quiet machine,
for six minutes: python benchmarks/malleable.py [compiled|python|starts|messages|clustering ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from boxes import put_up
from claims import Claim, at_least, at_most, conclude

from qtide.core.metrics import Metrics, measure
from qtide.mpi.build import build
from qtide.runs.folder import RunFolder

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "mpi" / "aggregation.py"
ROUNDS = 20
GIGABYTE = 131072  # rows of 8 kB
LIMIT = 300.0  # seconds per program
AT_ONCE = 100  # growths of the program in Python without a pause
STARTS = 60  # of two ranks by srun
PHASES = {
    "grant": "until Slurm granted the nodes",
    "start": "until Python was up, with its imports",
    "connect": "until MPI had joined them",
}
JOINS = 250  # growths of the program in C, of two newcomers each
CLEAN_UP = 500  # milliseconds after which Slurm has the nodes again
TURNS = 4  # of moving a gigabyte in C
ITERATIONS, QUANTUM = 3, 40.0  # of the clustering; seconds of each quantum phase


def told(words: list[str], folder: Path, variables: Mapping[str, str]) -> str:
    """What a program prints."""
    return subprocess.run(
        words,
        cwd=folder,
        env=os.environ | dict(variables),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT,
    ).stdout


def started(*command: str) -> float:
    """Median seconds of a plain start."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, check=True)
        taken.append(time.perf_counter() - began)
    return median(taken)


def compiled(folder: Path) -> dict[str, str]:
    """The programs in C, by name, as a user builds them."""
    compiler = str(Path(sys.executable).with_name("mpicc_abi"))
    build(folder / "libqtide", compiler)
    places = [f"-I{folder}/libqtide/include", f"{folder}/libqtide/lib/libqtide.a", "-pthread"]
    programs = {name: str(folder / name) for name in ("reconfigure", "move")}
    for name, program in programs.items():
        source = str(HERE / "mpi" / f"{name}.c")
        subprocess.run([compiler, "-O2", "-o", program, source, *places], check=True)
    return programs


def moved(folder: Path, program: str, variables: Mapping[str, str]) -> tuple[float, float]:
    """The best seconds in which C moved a gigabyte: by the library, and by a plain Alltoallv.

    The program moves by the library and then by the collective; the ledger has the sum of each
    turn. The best of the differences would be that of the turn with the slowest collective.
    """
    runs = {"QTIDE_RUNS": str(folder / "moves")}
    out = told([program, str(GIGABYTE), str(TURNS)], folder, {**variables, **runs})
    plain = [float(line) for line in out.splitlines()]
    grown = growths(RunFolder.find(folder / "moves", "last"))
    both = [each["move"] for each in grown if each["after"] == 3]
    return min(both) - min(plain), min(plain)


def growths(run: RunFolder) -> list[dict[str, Any]]:
    """The seconds of the parts of every growth, from the ledger."""
    notes = [json.loads(line) for line in run.ledger.read_text().splitlines()]
    return [each for each in notes if each.get("note") == "grew"]


def paired(folder: Path, variables: Mapping[str, str]) -> bool:
    """Whether two processes that srun starts find each other."""
    launcher = ["srun", "--mpi=pmi2", "--nodes=2", "--ntasks=2"]
    words = [*launcher, sys.executable, str(HERE / "mpi" / "pair.py"), str(folder)]
    environment = os.environ | dict(variables)
    return not subprocess.run(words, env=environment, timeout=LIMIT, check=False).returncode


def clustering(folder: Path, variables: Mapping[str, str], *words: str) -> Metrics:
    """The figures of the clustering; the first run of it compiles what others find."""
    runs = folder / f"clustering{len(words)}"
    runs.mkdir(exist_ok=True)
    size = ["--points", "2000", "--rounds", str(ITERATIONS), "--seconds", str(QUANTUM)]
    told([sys.executable, str(EXAMPLE), *size, *words], runs, variables)
    newest = RunFolder.find(runs / "qtide-runs", "last")
    return measure(newest.intervals())


def measure_compiled(folder: Path, variables: Mapping[str, str]) -> list[Claim]:
    """Programs in C."""
    programs = compiled(folder)
    words = [programs["reconfigure"], str(ROUNDS), str(CLEAN_UP)]
    changes = json.loads(told(words, folder, variables))
    joins = json.loads(told([programs["reconfigure"], str(JOINS)], folder, variables))
    expand, shrink = median(changes["expand"]), median(changes["shrink"])
    plain = started(programs["reconfigure"], "0")
    own, peer = moved(folder, programs["move"], variables)
    print(
        f"C, {ROUNDS} times 1 → 3 → 1 nodes: expand {expand:.3f} s, shrink {1000 * shrink:.2f} ms"
    )
    print(f"C, {JOINS} times without a pause: expand {median(joins['expand']):.3f} s")
    print(f"C, growths that failed: {joins['failures']};  a plain start of MPI: {plain:.3f} s")
    print(f"C, 1 GB from 2 to 3 ranks: {own:.2f} s;  peer, a plain Alltoallv: {peer:.2f} s")
    return [
        at_most("C: expand 1 → 3 nodes, median s", expand, 0.35),
        at_most("C: shrink 3 → 1 nodes, median ms", 1000 * shrink, 5.0),
        at_least("C: 1 GB moved, speed relative to Alltoallv", peer / own, 0.9),
        at_most(f"C: joins that failed, of {2 * JOINS}", 2 * joins["failures"], 0),
    ]


def measure_python(folder: Path, variables: Mapping[str, str]) -> list[Claim]:
    """Programs in Python: changes of size."""
    words = [str(HERE / "mpi" / "reconfigure.py"), str(ROUNDS), str(folder), str(AT_ONCE)]
    changes: dict[str, Any] = json.loads(told([sys.executable, *words], folder, variables))
    parts = growths(RunFolder.find(folder, "last"))[:ROUNDS]
    plain = started(sys.executable, "-c", "import numpy; from mpi4py import MPI")
    words = [str(HERE / "mpi" / "move.py"), str(GIGABYTE), str(folder)]
    moves: dict[str, list[float]] = json.loads(told([sys.executable, *words], folder, variables))
    expand, shrink = median(changes["expand"]), median(changes["shrink"])
    print(f"{ROUNDS} times 1 → 3 → 1 nodes")
    print(f"expand, until the first collective is done: median {expand:.3f} s")
    print(f"  the first, which connects to Slurm: {changes['expand'][0]:.3f} s")
    for part, what in PHASES.items():
        print(f"  {what}: median {median(each[part] for each in parts):.3f} s")
    print(f"shrink: median {shrink:.3f} s;  peer, a plain start: {plain:.3f} s")
    print(f"nodes idle again after a shrink: median {median(changes['idle']):.3f} s")
    own, peer = min(moves["own"]), min(moves["plain"])
    joins = 2 * (ROUNDS + AT_ONCE)
    print(f"newcomers that did not join: {changes['failures']} of {joins}")
    print(f"1 GB from 2 to 3 ranks: {own:.2f} s;  peer, a plain Alltoallv: {peer:.2f} s")
    return [
        at_most("expand 1 → 3 nodes, median s", expand, 0.5),
        at_most("shrink 3 → 1 nodes, median s", shrink, 0.1),
        at_least("1 GB moved, speed relative to Alltoallv", peer / own, 0.6),
        at_most(f"newcomers that did not join, of {joins}", changes["failures"], 0),
    ]


def measure_starts(folder: Path, variables: Mapping[str, str]) -> list[Claim]:
    """Worlds of two ranks that srun starts, without qtide."""
    failed = sum(not paired(folder, variables) for _ in range(STARTS))
    print(f"starts of two ranks by srun that failed: {failed} of {STARTS}")
    return [at_most(f"starts of two ranks by srun that failed, of {STARTS}", failed, 0)]


def measure_messages(folder: Path, variables: Mapping[str, str]) -> list[Claim]:
    """Operations of a job's communicator beside those of mpi4py."""
    words = [sys.executable, str(HERE / "mpi" / "messages.py"), str(folder)]
    messages: dict[str, Any] = json.loads(told(words, folder, variables))
    ratios = {what: each["own"] / each["raw"] for what, each in messages["operations"].items()}
    for what, each in messages["operations"].items():
        own, raw = 1e6 * each["own"], 1e6 * each["raw"]
        print(f"{what} B: {own:.1f} µs;  peer, mpi4py's own: {raw:.1f} µs;  {own / raw:.2f} ×")
    print(f"a rank that waits uses {100 * messages['waiting']:.1f} % of a core")
    worst: dict[str, float] = {}
    for what, ratio in ratios.items():
        operation = what.split()[0]
        worst[operation] = max(worst.get(operation, 0.0), ratio)
    return [
        *(
            at_most(f"{operation} of 64 B to 64 MB, worst time relative to raw", ratio, 1.1)
            for operation, ratio in worst.items()
        ),
        at_most("a rank that waits, % of a core", 100 * messages["waiting"], 20.0),
    ]


def measure_clustering(folder: Path, variables: Mapping[str, str]) -> list[Claim]:
    """The clustering aggregation, malleable beside static."""
    warm = ["--points", "2000", "--rounds", "1", "--seconds", "0"]
    told([sys.executable, str(EXAMPLE), *warm], folder, variables)
    grown, fixed = clustering(folder, variables), clustering(folder, variables, "--static")
    for what, each in (("malleable", grown), ("static", fixed)):
        print(f"clustering, {what}: wall {each.total:.1f} s, {each.nodes_held:.1f} node-seconds")
    more = grown.total - fixed.total
    return [
        at_most("clustering, overhead per iteration, s", more / ITERATIONS, 0.6),
        at_most("clustering, more wall time than static, %", 100 * more / fixed.total, 1.0),
    ]


PARTS = {
    "compiled": measure_compiled,
    "python": measure_python,
    "starts": measure_starts,
    "messages": measure_messages,
    "clustering": measure_clustering,
}


def main() -> None:
    """Measure, print the table, and last the claims as one line of JSON."""
    claims: list[Claim] = []
    with put_up() as conf, tempfile.TemporaryDirectory() as name:
        folder, variables = Path(name), {"SLURM_CONF": str(conf), "QTIDE_CLUSTER": "slurm"}
        print(f"the machine's load was {os.getloadavg()[0]:.1f}")
        for part in sys.argv[1:] or PARTS:
            claims += PARTS[part](folder, variables)
    conclude("malleable", claims)


if __name__ == "__main__":
    main()
