"""A program made of a plan, and plans for property-based tests.

A plan is a list of steps: ["c", [seconds…]] classical tasks, ["p", [[seconds, cores, gpus,
gigabytes]…]] tasks that share nodes, or take whole ones with 0 cores, perhaps of a kind that is
the fifth word, ["q", seconds] a payload, ["s", nodes, seconds] an SPMD task, or with a second
number of nodes one whose size is chosen, ["f", seconds] a task that fails and is caught,
["l", [seconds…], limit] tasks that are ended if they take longer, ["o", seconds, seconds,
patience] a payload or a task that gives the same, ["m", least, most, [seconds…], want] a malleable
task of so many steps that wants `want` nodes from half-way on, ["t", [steps…]] steps together.
Tasks are told the key that their phase has to have in the journal.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from qtide import TimedOut, classical, pretend, program, quantum, task, together
from qtide.backends.payloads.payload import Burst
from qtide.core.resources import NodeKind
from qtide.programs.phase import Task

NODE = NodeKind(cores=4, gpus=2, memory=8 * 10**9)
"""What a node has."""
GPU_NODE = NodeKind("gpu", cores=2, gpus=4, memory=4 * 10**9)
"""What a node of the second kind has, if there is one."""
RAN: list[str] = []
"""The keys of the phases whose tasks were called."""


@program
async def planned(plan: str, seed: int = 0) -> list[Any]:
    results: list[Any] = [seed]
    for number, step in enumerate(json.loads(plan), 1):
        salt = crc32(repr(results).encode())
        results.append(await _step(step, str(number), salt))
    return results


async def _step(step: list[Any], key: str, salt: int) -> Any:
    match step:
        case ["c" | "p", tasks]:
            return await classical(*(_task(each, key, salt) for each in tasks))
        case ["q", seconds]:
            return await quantum(Burst(seconds, salt))
        case ["o", seconds, instead, patience]:
            payload, equal = Burst(seconds, salt), task(equivalent, key, instead, salt)
            return await quantum(payload, otherwise=equal, patience=patience)
        case ["s", *sizes, seconds]:
            chosen = len(sizes) > 1
            found = await task(alike if chosen else ranked, key, seconds, salt).on(*sizes)
            return {*found} if chosen else found
        case ["f" | "l" | "m", *_]:
            return await _caught(step, key, salt)
        case ["t", steps]:
            # a part is a coroutine of its own: its one phase is the first of that part
            parts = [_step(each, f"{key}.{n}.1", salt) for n, each in enumerate(steps, 1)]
            return await together(*parts)
    raise AssertionError(step)


def _task(wanted: float | list[Any], key: str, salt: int) -> Task[int]:
    seconds, cores, gpus, memory, *kinds = wanted if isinstance(wanted, list) else (wanted, 0, 0, 0)
    made = task(work, key, seconds, salt)
    kind = kinds[0] if kinds else None
    if not cores:
        return made.needs(kind=kind) if kind else made
    return made.needs(cores, gpus, f"{memory} GB" if memory else None, kind)


async def _caught(step: list[Any], key: str, salt: int) -> Any:
    try:
        match step:
            case ["f", seconds]:
                await task(fail, key, seconds)
            case ["l", seconds, limit]:
                tasks = [task(work, key, each, salt) for each in seconds]
                return await classical(*tasks).within(limit)
            case ["m", least, most, rounds, want]:
                resizable = task(resized, key, rounds, want, salt)
                return await resizable.on(least, most, malleable=True)
    except (ValueError, TimedOut) as error:
        return str(error)
    raise AssertionError(step)


def work(key: str, seconds: float, salt: int) -> int:
    RAN.append(key)
    pretend(seconds)
    return crc32(f"{seconds} {salt}".encode())


def equivalent(key: str, seconds: float, salt: int) -> int:
    RAN.append(key)
    pretend(seconds)
    return salt


def ranked(key: str, seconds: float, salt: int, rank: int = 0, size: int = 1) -> int:
    RAN.append(key)
    pretend(seconds)
    return salt + rank * size


def alike(key: str, seconds: float, salt: int, rank: int = 0, size: int = 1) -> int:
    RAN.append(key)
    pretend(seconds / size)
    return salt


def resized(key: str, rounds: list[float], want: int, salt: int, job: Any = None) -> int:
    RAN.append(key)
    for step in job.steps(len(rounds)):
        job.check()
        if step == len(rounds) // 2:
            job.shrink(want)
        pretend(rounds[step] / job.size)
        if want == 2:
            job.expand()
    return crc32(f"{rounds} {want} {salt}".encode())


def fail(key: str, seconds: float) -> None:
    RAN.append(key)
    pretend(seconds)
    raise ValueError(f"failed at {key}")


seconds = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 7.5, 30.0])
classical_step = st.lists(seconds, min_size=1, max_size=5).map(lambda each: ["c", each])
quantum_step = seconds.map(lambda each: ["q", each])
patiences = st.sampled_from([None, None, 0.0, 0.3, 10.0])
candidate_step = st.tuples(st.just("o"), seconds, seconds, patiences).map(list)
part = st.tuples(seconds, st.integers(0, 4), st.sampled_from([0, 0, 1, 2]), st.integers(0, 8))
parts_step = st.lists(part.map(list), min_size=1, max_size=9).map(lambda each: ["p", each])
failing_step = seconds.map(lambda each: ["f", each])
limits = st.sampled_from([0.05, 0.7, 5.0, 20.0])  # none of the seconds: which ends first is certain
limited_step = st.tuples(st.just("l"), st.lists(seconds, min_size=1, max_size=4), limits).map(list)


gpu_part = st.tuples(
    seconds, st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.just("gpu")
)
either = st.one_of(part, gpu_part).map(list)
kinds_step = st.lists(either, min_size=1, max_size=9).map(lambda each: ["p", each])


def plans(nodes: int, *, kinds: bool = False) -> st.SearchStrategy[list[Any]]:
    """Plans whose SPMD tasks fit on `nodes` nodes, also for nodes of a second kind."""
    spmd = st.tuples(st.just("s"), st.integers(2, max(2, nodes)), seconds).map(list)
    malleable = st.tuples(st.integers(1, nodes), st.integers(0, 4)).flatmap(
        lambda sizes: st.tuples(
            st.just("m"),
            st.just(sizes[0]),
            st.just(sum(sizes)),
            st.lists(seconds, max_size=6),
            st.integers(1, 3),
        )
    )
    sized = st.tuples(st.integers(1, nodes), st.integers(0, 4), seconds).map(
        lambda each: ["s", each[0], each[0] + each[1], each[2]]
    )
    simple = [
        malleable.map(list),
        sized,
        classical_step,
        parts_step,
        *([kinds_step] * 3 if kinds else []),
        quantum_step,
        quantum_step,
        candidate_step,
        failing_step,
        limited_step,
    ]
    step = st.one_of(*simple, spmd) if nodes > 1 else st.one_of(*simple)
    side = st.lists(step, min_size=1, max_size=3).map(lambda each: ["t", each])
    return st.lists(st.one_of(step, step, side), min_size=1, max_size=8)
