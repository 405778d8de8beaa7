"""A program with everything that a journal can hold; its run predates the move of packages."""

from __future__ import annotations

from threading import Lock
from typing import Any

import dimod
import numpy as np

from qtide import classical, program, quantum, task, together
from qtide.errors import PhaseError

COIN = """OPENQASM 3.0;
include "stdgates.inc";
bit[2] c;
qubit[2] q;
ry(pi/2) q[0];
rx(pi) q[1];
c = measure q;
"""


def facts(number: int) -> dict[str, Any]:
    return {"number": number, "words": ("plain", "data"), "set": {1, 2}}


def ramp(length: int) -> Any:
    return np.arange(length, dtype=np.int32)


def divide(number: int, by: int) -> float:
    return number / by


def fail_oddly() -> None:
    """Raise an error that cannot be pickled."""
    error = RuntimeError("with a lock")
    error.lock = Lock()  # type: ignore[attr-defined]
    raise error


async def failure(phase: Any) -> tuple[str, list[str]]:
    """How a phase failed: its class without the package, which may move."""
    try:
        await phase
    except (PhaseError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}", getattr(error, "__notes__", [])
    return "it did not fail", []


@program
async def everything(seed: int = 0) -> dict[str, Any]:
    """Phases of every kind; some fail, and the program catches that."""
    known, long = await classical(task(facts, seed), task(ramp, 17_000))
    samples = await quantum(dimod.BinaryQuadraticModel({"a": -1, "b": 2}, {"ab": 1}, 0, "BINARY"))
    shots, (coins, again) = await together(quantum(COIN, shots=64), quantum([COIN, COIN], shots=32))
    return {
        "facts": [known["number"], list(known["words"]), sorted(known["set"])],
        "ramp": [str(long.dtype), len(long), int(long.sum())],
        "samples": [len(samples), int(samples.first.sample["a"]), float(samples.first.energy)],
        "shots": [each.counts() for each in (shots[0], coins, again)],
        "refused": await failure(quantum({"no": "payload"})),
        "failed": await failure(quantum(COIN, shots=20_000)),
        "raised": await failure(task(divide, 1, 0)),
        "odd": await failure(task(fail_oddly)),
    }
