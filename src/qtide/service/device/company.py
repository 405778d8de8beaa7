"""Company: which tasks run at the same time as one whose turn it is, on qubits of their own.

They take no longer than that one, so the device is free again when it would be without them: nobody
waits longer for their sake. The time is divided in proportion to what each takes alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from qtide.service.task import Company, ServiceTask


def company_of(
    head: ServiceTask, others: Iterable[ServiceTask], qubits: int, most: int
) -> list[ServiceTask]:
    """A task and those of the others, in their order, that run beside it; `most` in all."""
    found, free = [head], qubits - _width(head)
    for task in others:
        if len(found) == most or head.left_alone <= 0:
            break
        if task is not head and _width(task) <= free and task.left_alone <= head.left_alone:
            found.append(task)
            free -= _width(task)
    if len(found) > 1:
        _divide(found)
    return found


def _width(task: ServiceTask) -> float:
    """The qubits that a task takes; suspects and those that gave way have the device alone."""
    return inf if task.width is None or task.suspect or task.share else task.width


def _divide(tasks: list[ServiceTask]) -> None:
    """Divide the time of the longest of the tasks among all of them."""
    whole = max(task.left_alone for task in tasks)
    total = sum(task.left_alone for task in tasks)
    for number, task in enumerate(tasks):
        part = task.left_alone / total
        task.company = Company(whole / total, part, len(tasks) - 1, first=number == 0)
