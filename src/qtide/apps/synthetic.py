"""A synthetic application: phases that only take time, listed in a TOML file (a shape)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

from annotated_types import Ge, Interval

from qtide import classical, pretend, program, quantum, task, together
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import UsageError
from qtide.programs.phase import Classical, Quantum

LONGEST = 1e9
"""Upper limit of a phase's duration in seconds: thirty years."""


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


async def _play(step: SyntheticStep, salt: int) -> Any:
    phases: list[Classical | Quantum] = []
    if step.tasks and step.nodes == 1:
        phases.append(classical(*(task(work, seconds, salt) for seconds in step.tasks)))
    elif step.tasks:
        together_on = (task(shared, seconds, salt).on(step.nodes) for seconds in step.tasks)
        phases.append(classical(*together_on))
    if step.quantum:
        phases.append(quantum(Burst(step.quantum_s, salt)))
    return await together(*phases) if len(phases) > 1 else await phases[0]


def work(seconds: float, salt: int) -> int:
    """Take this long and return a number that depends on earlier results."""
    pretend(seconds)
    return crc32(f"{seconds} {salt}".encode())


def shared(seconds: float, salt: int, rank: int = 0, size: int = 1) -> int:
    """Do the same as one rank of a task on several nodes."""
    return work(seconds, salt)


@dataclass(frozen=True)
class SyntheticStep:
    """Classical tasks given by their seconds, a quantum payload, or both side by side.

    A quantum payload of `None` seconds takes as long as the QPU's timing profile says.
    """

    tasks: tuple[float, ...] = ()
    quantum: bool = False
    quantum_s: float | None = None
    nodes: int = 1
    """Nodes of each task."""


@dataclass(frozen=True)
class SyntheticShape:
    """The steps of one iteration, and the number of iterations."""

    title: str
    iterations: int
    steps: tuple[SyntheticStep, ...]


def shipped() -> list[str]:
    """Return the names of the shapes that ship with qtide."""
    folder = files("qtide.apps")
    return sorted(each.name[:-5] for each in folder.iterdir() if each.name.endswith(".toml"))


def read(name: str) -> SyntheticShape:
    """Read the shipped shape of that name, or a shape from a TOML file."""
    if name in shipped():
        text = files("qtide.apps").joinpath(f"{name}.toml").read_bytes()
    else:
        try:
            text = Path(name).read_bytes()
        except OSError as error:
            raise UsageError(
                f"{name} cannot be read ({error.strerror}); name a TOML file, or one of the "
                f"shipped: {', '.join(shipped())}"
            ) from None
    try:
        return _shape(tomllib.loads(text.decode()), name)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{name} is not valid TOML: {error}") from None


def _shape(table: dict[str, Any], name: str) -> SyntheticShape:
    _only(table, {"title", "iterations", "phase"}, name)
    iterations, phases = table.get("iterations", 1), table.get("phase")
    if type(iterations) is not int or iterations < 1:
        raise UsageError(f"{name}: iterations is a number from 1 on, not {iterations!r}")
    if not isinstance(phases, list) or not phases:
        raise UsageError(f"{name}: there is no phase; add a [[phase]] with tasks or quantum")
    steps = tuple(_step(each, f"{name}, phase {n}") for n, each in enumerate(phases, 1))
    return SyntheticShape(str(table.get("title", name)), iterations, steps)


def _step(table: dict[str, Any], where: str) -> SyntheticStep:
    _only(table, {"tasks", "quantum", "nodes"}, where)
    tasks, quantum = table.get("tasks", []), table.get("quantum", False)
    if not isinstance(tasks, list) or not all(_seconds(each) for each in tasks):
        raise UsageError(f"{where}: tasks is a list of seconds, not {tasks!r}")
    if not (isinstance(quantum, bool) or _seconds(quantum)):
        raise UsageError(f"{where}: quantum is a number of seconds, or true, not {quantum!r}")
    if not tasks and quantum is False:
        raise UsageError(f"{where}: it has neither tasks nor quantum")
    nodes = table.get("nodes", 1)
    if type(nodes) is not int or nodes < 1:
        raise UsageError(f"{where}: nodes is a number from 1 on, not {nodes!r}")
    seconds = None if isinstance(quantum, bool) else float(quantum)
    return SyntheticStep(tuple(map(float, tasks)), quantum is not False, seconds, nodes)


def _only(table: dict[str, Any], keys: set[str], where: str) -> None:
    for key in table:
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            advice = f"did you mean {near[0]!r}? There" if near else "there"
            raise UsageError(
                f"{where}: there is no key {key!r}; {advice} are: {', '.join(sorted(keys))}"
            )


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LONGEST
