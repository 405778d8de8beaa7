"""A workflow with quantum candidates: steps for a QPU or a node, whichever should end first.

The idea is that of Cranganore et al. (2024), which "Three ways to share a QPU" takes up without
numbers: a workflow's designer marks such steps, and the choice is made at run time.
"""

from __future__ import annotations

from shutil import rmtree
from typing import Literal

from qtide import pretend, program, quantum, task
from qtide.backends.payloads.payload import Burst
from qtide.experiments.reproduction.result import ItemResult, Statement, Value, Workplace
from qtide.runs.comparison import compare
from qtide.runs.spec import Spec

Way = Literal["quantum", "classical", "candidate"]
WAYS: tuple[Way, ...] = ("quantum", "classical", "candidate")
JOBS = (1, 2, 4, 8)
ROUNDS, PREPARE, ON_QPU, ON_NODE = 10, 20.0, 20.0, 60.0
"""Of a job: rounds, and the seconds of each one's preparation and of its candidate step."""


@program
async def candidates(way: Way = "candidate") -> int:
    """Prepare and solve in turns; each problem is solved on the QPU, on a node, or either."""
    for number in range(ROUNDS):
        await task(prepare, number)
        payload = Burst(ON_QPU, number)
        if way == "classical":
            await task(solve, number)
        elif way == "quantum":
            await quantum(payload)
        else:
            await quantum(payload, otherwise=task(solve, number))
    return ROUNDS


def prepare(number: int) -> int:
    """Classical work before a candidate step."""
    pretend(PREPARE)
    return number


def solve(number: int) -> int:
    """Do a candidate step without a QPU."""
    pretend(ON_NODE)
    return number


def chosen_steps(place: Workplace, name: str, _: float) -> ItemResult:
    """Run 1 to 8 such workflows at once that share one QPU, each way."""
    folder = place.folder / name
    rmtree(folder, ignore_errors=True)  # virtual time: it is there again at once
    means: dict[tuple[str, int], float] = {}
    values = []
    for way in WAYS:
        reference = f"{__name__}:candidates"
        spec = Spec(reference, ["--way", way], cluster=f"simulated:{max(JOBS)}", nodes=1)
        for case in compare(folder / way, spec, ["workflow"], JOBS, lambda *_: None):
            mean = means[way, case.jobs] = case.panel().metrics.mean_wall
            runs = tuple(str(run.path.relative_to(place.folder)) for run in case.runs)
            what = f"{way}, {case.jobs} job{'s' if case.jobs > 1 else ''}: mean time of a job"
            values.append(Value(what, "s", (mean,), runs=runs))
    gains = {
        jobs: min(means[way, jobs] for way in WAYS[:2]) / means["candidate", jobs] for jobs in JOBS
    }
    return ItemResult(
        name,
        "A workflow with quantum candidates",
        "Three ways to share a QPU, section 3.3, which has no numbers",
        tuple(values),
        (
            Statement(
                "with candidates, a job takes at most 10 % longer than the better of both ways",
                min(gains.values()) > 1 / 1.1,
            ),
            Statement(
                "where the QPU is scarce, but not out of reach, it takes less than either",
                max(gains.values()) > 1.05,
            ),
        ),
        notes=(
            f"Virtual time, by the strategy's own code: {ROUNDS} rounds of {PREPARE:g} s and a "
            f"candidate step of {ON_QPU:g} s on the QPU or {ON_NODE:g} s on a node; all jobs share "
            "one QPU, and each has a node.",
            "Until a step has run on a node once, a workflow does not know how long that takes.",
        ),
        virtual=True,
    )
