"""The warm-up before a comparison: what a node loads at its first call is paid for by nobody.

It is no strategy to choose: it holds everything, and calls each function once on every node.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from qtide.clusters.rehearsal import load, rehearse
from qtide.errors import PhaseError, QtideError
from qtide.programs.phase import Classical, Task
from qtide.strategies.static import Static
from qtide.strategies.strategy import Assignment


class WarmUp(Static):
    """Where agents outlive a grant, on all nodes of the cluster; otherwise on all that a job gets.

    On Slurm each grant starts a new process; what stays warm there are the files that it reads, in
    the page cache of each host, and the compiled modules beside them.
    """

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        cluster = assignment.site.cluster
        nodes = cluster.size if cluster.keeps_agents else assignment.nodes
        super().__init__(replace(assignment, nodes=nodes), options)
        self._called: set[str] = set()

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks; then those functions that are new once on every node, at the same time."""
        results = await super().classical(phase, key)
        new = {task.name: task for task in phase.tasks if task.name not in self._called}
        self._called |= new.keys()
        for each in new.values():
            with suppress(QtideError, PhaseError):  # a node that is lost needs no warming
                await self.pool.run(Classical((_rehearsal(each, self.nodes),)), key)
        return results


def _rehearsal(task: Task[Any], nodes: int) -> Task[Any]:
    """The ranks of an SPMD task may wait for each other, so such a function is only loaded."""
    if task.nodes > 1:
        return Task(load, (task.function,), nodes=nodes)
    return Task(rehearse, (task.function, task.args, task.kwargs), nodes=nodes, limit=task.limit)
