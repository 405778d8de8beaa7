"""A program of circuits for whatever device it runs on, to be run by its file."""

from __future__ import annotations

from math import pi
from typing import Any

from qtide import Target, classical, program, quantum, task
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.backends.payloads.shots import Shots


def turn(qubit: str, angle: float) -> Operation:
    return Operation("prx", (qubit,), {"angle": angle, "phase": pi / 2})


def entangled(target: Target, angle: float) -> IqmBatch:
    """The qubit with most connections, turned, and its neighbours flipped with it."""
    names = target.properties["qubits"]
    ends = [end for pair in target.connections for end in pair]
    hub = max(range(target.qubits), key=ends.count)
    near = [a + b - hub for a, b in target.connections if hub in (a, b)]
    steps = [turn(names[hub], angle)]
    for each in near:
        steps += [turn(names[each], -pi / 2), Operation("cz", (names[hub], names[each]))]
        steps.append(turn(names[each], pi / 2))
    measured = Operation("measure", tuple(names[each] for each in (hub, *near)), {"key": "m"})
    return IqmBatch((IqmCircuit("entangled", (*steps, measured)),))


def ones(answer: list[Shots], weight: int) -> float:
    """The mean of the measured bits, weighted."""
    rows = answer[0].rows("m")
    return weight * sum(map(sum, rows)) / len(rows)


@program
async def circuits(target: Target, rounds: int = 3) -> list[Any]:
    """Each round turns by an angle that depends on what the last one has measured."""
    found: list[Any] = [target.name, target.qubits]
    angle = pi / 3
    for _ in range(rounds):
        answer = await quantum(entangled(target, angle), shots=200)
        first, second = await classical(task(ones, answer, 1), task(ones, answer, 2))
        angle = first / target.qubits * pi
        found.append([round(first, 6), round(second, 6), answer[0].counts()])
    return found


@program
async def refused(rounds: int = 1) -> str:
    """A payload that only some devices take; its refusal may be caught."""
    for _ in range(rounds):
        await quantum("OPENQASM 3.0; qubit[9] q; bit[9] c; c = measure q;")
    return "taken"


@program
async def own(target: float = 0.5) -> float:
    """A parameter of the same name that is the program's own."""
    return target
