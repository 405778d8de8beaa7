"""The embedded cluster: N nodes of this machine, each an agent process that is kept warm."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from qtide.clusters.cluster import Node, Work
from qtide.clusters.fifo import FifoCluster
from qtide.clusters.link import SILENCE, Link, supervisor_terms
from qtide.clusters.pretend import SCALE
from qtide.errors import QtideError
from qtide.world.real import RealWorld


@dataclass(frozen=True)
class Limits:
    """What one node may use; None is no limit."""

    memory: int | None = None  # bytes
    cores: int | None = None


class LocalCluster(FifoCluster):
    """Agents as child processes. An agent outlives a grant; one that still works is replaced."""

    def __init__(
        self,
        world: RealWorld,
        nodes: int,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        log: Path | None = None,
        silence: float = SILENCE,
    ) -> None:
        super().__init__(world, [f"n{number}" for number in range(1, nodes + 1)])
        self._limits = limits
        self._silence = silence
        self._log: IO[bytes] | None = log.open("ab") if log else None
        self._environment = os.environ | {SCALE: repr(world.scale)}
        self._agents: dict[str, Link] = {}

    async def ready(self, node: Node) -> None:
        """Start an agent where none is warm."""
        agent = self._agents.get(node.name)
        if agent is None or not agent.alive:
            agent = self._agents[node.name] = await self._start(node.name)
        agent.node = node

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Hand the task to the node's agent."""
        self._agents[node.name].send(ticket, work)

    async def stopped(self, node: Node) -> bool:
        """Keep an idle agent warm; one that still works for us is killed."""
        agent = self._agents.get(node.name)
        if agent is not None:
            agent.node = None
            if node.dirty:
                del self._agents[node.name]
                await agent.kill()
        return True

    async def close(self) -> None:
        """Kill all agents."""
        agents, self._agents = self._agents, {}
        await asyncio.gather(*(agent.kill() for agent in agents.values()))
        if self._log:
            self._log.close()

    def pids(self) -> Mapping[str, int]:
        """The process of each node that has one."""
        return {name: agent.pid for name, agent in self._agents.items()}

    async def _start(self, name: str) -> Link:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "qtide.clusters.agent", self._terms_of(name)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env=self._environment,
            start_new_session=True,
        )
        agent = Link(process, self._silence)
        try:
            await agent.greet()
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            await agent.kill()
            where = f"; see {self._log.name}" if self._log else ""
            raise QtideError(f"the agent of node {name} did not start{where}") from error
        except BaseException:
            await agent.kill()
            raise
        return agent

    def _terms_of(self, name: str) -> str:
        """Limits, and how to stay in touch. The nodes go round this machine's cores."""
        wish, cores = self._limits, sorted(os.sched_getaffinity(0))
        limits: dict[str, Any] = {} if wish.memory is None else {"memory": wish.memory}
        if wish.cores is not None:
            first = (int(name[1:]) - 1) * wish.cores
            limits["cores"] = [cores[(first + n) % len(cores)] for n in range(wish.cores)]
        return json.dumps({"limits": limits, "supervisor": supervisor_terms(self._silence)})
