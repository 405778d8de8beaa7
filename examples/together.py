"""Quantum and classical phases side by side, and an exception that is caught.

Run it: qtide run examples/together.py --strategy malleable
"""

from qtide import classical, pretend, program, quantum, task, together
from qtide.backends.payloads.payload import Burst


def simulate(seconds: float) -> float:
    """Work of a known length; `pretend` makes it follow --time-scale."""
    pretend(seconds)
    return seconds


def risky() -> float:
    """A task that fails."""
    raise ArithmeticError("no convergence")


@program(nodes=3)
async def overlap() -> dict[str, float]:
    """While the QPU works, so do the nodes."""
    halves, answer = await together(
        classical(task(simulate, 1.0), task(simulate, 0.5)), quantum(Burst(1.5, answer=42.0))
    )
    try:
        extra = await task(risky)
    except ArithmeticError:
        extra = 0.0
    return {"classical": sum(halves), "quantum": answer, "extra": extra}
