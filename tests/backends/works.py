"""Work for nodes, made without a program."""

from collections.abc import Callable
from typing import Any

from qtide import task
from qtide.backends.clusters.cluster import Work
from qtide.core.job import JobContext


def call(job: JobContext, function: Callable[..., Any], *args: Any, key: str = "1") -> Work:
    """A function as work for a node; the task is used, as if a phase had it."""
    made = task(function, *args)
    made.use()
    return Work(job, made, key)
