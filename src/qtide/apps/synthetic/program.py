"""The program of the synthetic application."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from zlib import crc32

from annotated_types import Ge, Interval

from qtide import classical, pretend, program, quantum, task, together
from qtide.apps.synthetic.shape import LONGEST, Step, read
from qtide.payloads.payload import Burst
from qtide.programs.phase import Classical, Quantum


@program
async def synthetic(
    shape: str = "published",
    quantum_s: Annotated[float | None, Interval(ge=0, lt=LONGEST)] = None,
    iterations: Annotated[int | None, Ge(1)] = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Run a shape; `quantum_s` replaces its quantum times, `iterations` the number of rounds.

    The result is a checksum over the results of all phases, so that runs can be compared.
    """
    plan = read(shape)
    checksum = seed
    rounds = iterations or plan.iterations
    for _ in range(rounds):
        for step in plan.steps:
            if quantum_s is not None and step.quantum:
                step = replace(step, quantum_s=quantum_s)  # noqa: PLW2901 - the same step, timed
            checksum = crc32(repr(await _play(step, checksum)).encode(), checksum)
    return {"title": plan.title, "iterations": rounds, "checksum": checksum}


async def _play(step: Step, salt: int) -> Any:
    phases: list[Classical | Quantum] = []
    if step.tasks:
        phases.append(classical(*(task(work, seconds, salt) for seconds in step.tasks)))
    if step.quantum:
        phases.append(quantum(Burst(step.quantum_s, salt)))
    return await together(*phases) if len(phases) > 1 else await phases[0]


def work(seconds: float, salt: int) -> int:
    """A task that takes this long, and gives a number that depends on earlier results."""
    pretend(seconds)
    return crc32(f"{seconds} {salt}".encode())
