"""The published experiment under every strategy: in virtual time at full length, then locally.

Bounds in the same run: closed forms for one job (static: nodes × wall; workflow and malleable: the
sum over phases) and the closed loop for two jobs on one QPU, (N−1)q + K(q+c).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from claims import Claim, at_most, conclude
from rich.console import Console

from qtide.core.metrics import Metrics
from qtide.interfaces.report.table import TableRow, rich_table
from qtide.runs.comparison import compare
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names

TASKS, SCORE, ROUNDS, NODES = (77.3, 4.6, 0.2), 52.0, 4, 3
CLASSICAL = max(TASKS) + SCORE

Table = dict[tuple[str, int], Metrics]


def table(quantum: float, cluster: str, scale: float = 1.0) -> Table:
    """Every strategy with one and two jobs."""
    words = ["published", "--quantum-s", str(quantum)]
    spec = Spec("synthetic", words, cluster=cluster, time_scale=scale, nodes=NODES)
    with tempfile.TemporaryDirectory() as folder:
        cases = compare(Path(folder), spec, strategy_names(), [1, 2], lambda *_: None)
        return {(case.strategy, case.jobs): case.panel().metrics for case in cases}


def show(title: str, found: Table) -> None:
    """Print a table."""
    rows = [TableRow(name, jobs, metrics) for (name, jobs), metrics in found.items()]
    print(title)
    Console(width=120).print(rich_table(rows, relative=True))


def closed_forms(found: Table, quantum: float) -> list[Claim]:
    """How far one job is from what the durations alone imply, as a fraction."""
    wall = ROUNDS * (CLASSICAL + quantum)
    held = {
        "static": NODES * wall,
        "workflow": ROUNDS * (NODES * max(TASKS) + SCORE),
        "malleable": ROUNDS * (NODES * max(TASKS) + quantum + SCORE),
    }
    claims = []
    for name, bound in held.items():
        metrics = found[name, 1]
        error = max(abs(metrics.nodes_held / bound - 1), abs(metrics.total / wall - 1))
        claims.append(at_most(f"{name}, q = {quantum:g} s: off its closed form", error, 0.001))
    return claims


def elastic(found: Table, quantum: float, where: str) -> list[Claim]:
    """The claims for our own strategy."""
    one, two = found["elastic", 1], found["elastic", 2]
    static, workflow = found["static", 1], found["workflow", 1]
    tag = f"{where}, q = {quantum:g} s: elastic"
    claims = [
        at_most(f"{tag}, 1 job, wall / static's", one.total / static.total, 1.01),
        at_most(f"{tag}, 1 job, node-s / workflow's", one.nodes_held / workflow.nodes_held, 0.55),
    ]
    if not quantum:
        total = two.total / static.total
        return [*claims, at_most(f"{tag}, 2 jobs, total / one static job", total, 1.02)]
    loop = quantum + ROUNDS * (quantum + CLASSICAL)
    usage = two.nodes_held / found["static", 2].nodes_held
    return [
        *claims,
        at_most(f"{tag}, 2 jobs, total / closed loop", two.total / loop, 1.02),
        at_most(f"{tag}, 2 jobs, node-s / two static jobs", usage, 0.25),
    ]


def main() -> None:
    """Run both experiments in virtual time and locally."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.02, help="of the local run's clock")
    parser.add_argument("--skip-local", action="store_true", help="only virtual time")
    options = parser.parse_args()
    claims: list[Claim] = []
    for quantum in (120.0, 0.0):
        found = table(quantum, f"simulated:{NODES}")
        show(f"virtual time, quantum phases of {quantum:g} s", found)
        claims += closed_forms(found, quantum) + elastic(found, quantum, "virtual")
    if not options.skip_local:
        for quantum in (120.0, 0.0):
            found = table(quantum, f"local:{NODES}", options.scale)
            show(f"local cluster, clock × {1 / options.scale:g}, quantum {quantum:g} s", found)
            claims += elastic(found, quantum, "local")
    conclude("strategies", claims)


if __name__ == "__main__":
    main()
