"""Drives a step without a run: tasks are called, payloads solved at once."""

from collections.abc import Callable, Coroutine
from typing import Any

from qtide.programs.phase import Classical, Quantum


def driven(step: Coroutine[Any, Any, Any], solve: Callable[..., Any] | None = None) -> Any:
    """The step's result; `solve` is given circuits, shots, and the number of the payload."""
    value, error, payloads = None, None, 0
    while True:
        try:
            phase = step.throw(error) if error else step.send(value)
        except StopIteration as end:
            return end.value
        value, error = None, None
        if isinstance(phase, Classical):
            value = [each.function(*each.args, **each.kwargs) for each in phase.tasks]
            continue
        assert isinstance(phase, Quantum) and solve is not None
        payloads += 1
        try:
            value = solve(phase.payload, phase.shots, payloads)
        except Exception as failure:
            error = failure
