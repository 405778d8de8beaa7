"""The local cluster: each node is an agent process on this machine that outlives a grant.

With the option `cold`, every grant starts a new agent, as on Slurm.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from qtide.backends.clusters.cluster import Cluster, KindsCluster, Message, Node, Work
from qtide.backends.clusters.fifo import FifoCluster
from qtide.backends.clusters.kind import CHARGED, OF_A_KIND, ClusterKind, Setting, numbered
from qtide.backends.clusters.link import (
    SILENCE,
    AgentFailed,
    Link,
    preparation_terms,
    supervisor_terms,
)
from qtide.backends.clusters.pretend import SCALE
from qtide.core.errors import NodeUnusable, UsageError
from qtide.core.job import JobContext
from qtide.core.options import Option
from qtide.core.processes import Child
from qtide.core.resources import PLAIN, BillingWeights, NodeKind, check_size
from qtide.core.world.real import RealWorld
from qtide.core.world.world import Future, World


def megabytes(word: str) -> int:
    """Convert a user's number of megabytes to bytes."""
    if not (word.isdecimal() and int(word) > 0):
        raise UsageError(f"--memory is a number of megabytes, not {word!r}")
    return int(word) * 2**20


@dataclass(frozen=True)
class LocalOptions:
    """Limits of each node (None for no limit), and whether every grant starts a new agent."""

    memory: Annotated[
        int | None, Option("Megabytes of memory that a node may use.", megabytes, "MB")
    ] = None
    """In bytes."""
    cores: Annotated[int | None, Option("Cores that a node may use.")] = None
    gpus: Annotated[int, Option("Pretended GPUs of a node.")] = 0
    kind: Annotated[list[str], OF_A_KIND] = field(default_factory=list)
    billing: Annotated[str, CHARGED] = ""
    cold: Annotated[bool, Option("Start new processes for every grant, as Slurm does.")] = False


class LocalCluster(FifoCluster):
    """Runs agents as child processes. An agent outlives a grant unless it is still busy."""

    def __init__(
        self,
        world: RealWorld,
        nodes: int,
        options: LocalOptions = LocalOptions(),
        silence: float = SILENCE,
        name: str = PLAIN,
    ) -> None:
        prefix = "n" if name == PLAIN else name
        names = [f"{prefix}{number}" for number in range(1, nodes + 1)]
        super().__init__(world, names)
        self._numbers = {each: number for number, each in enumerate(names)}
        self._options = options
        cores = _cores(options)
        memory = options.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        weights = BillingWeights.parse(options.billing) if options.billing else None
        self.kind = NodeKind(name, nodes, cores, options.gpus, memory, weights=weights)
        self._silence = silence
        self.keeps_agents = not options.cold
        self._environment = os.environ | {SCALE: repr(world.scale)}
        self._agents: dict[str, Link] = {}
        self._ending: dict[str, Future[None]] = {}
        """Interrupted agents that are still ending, by node name."""

    async def ready(self, node: Node, job: JobContext) -> None:
        """Start an agent unless the node has a warm one."""
        await self._ended(node)
        agent = self._agents.get(node.name)
        if agent is None or not agent.child.alive:
            agent = self._agents[node.name] = await self._start(node.name, job)
        agent.node, agent.log = node, job.log

    async def launch(
        self, node: Node, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        """Start a process on this machine, in its own session."""
        environment = os.environ | dict(variables)
        return await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, env=environment, start_new_session=True
        )

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Send the task to the node's agent."""
        self._agents[node.name].send(ticket, work)

    def tell(self, node: Node, ticket: int, message: Message) -> None:
        """Tell a task that runs on the node something, through the node's agent."""
        self._agents[node.name].tell(ticket, message)

    def interrupt(self, node: Node) -> None:
        """Kill the node's agent and everything it has started."""
        agent = self._agents.pop(node.name)
        agent.node = None
        self._ending[node.name] = self.world.start(agent.kill())

    def end_task(self, node: Node, ticket: int) -> None:
        """Kill the process of one task; its neighbours and the node's agent stay."""
        agent = self._agents.get(node.name)
        if agent is not None:
            agent.end_task(ticket)

    async def stopped(self, node: Node) -> bool:
        """Keep an idle agent warm unless `cold` is set; kill an agent that is still busy."""
        await self._ended(node)
        agent = self._agents.get(node.name)
        if agent is not None:
            agent.node = None
            if node.dirty or self._options.cold:
                del self._agents[node.name]
                await agent.kill()
        return True

    async def close(self) -> None:
        """Kill all agents."""
        await self.world.settled(self._ending.values())
        agents, self._agents = self._agents, {}
        await asyncio.gather(*(agent.kill() for agent in agents.values()))

    async def _ended(self, node: Node) -> None:
        """Wait until an interrupted agent is gone."""
        if node.name in self._ending:
            await self.world.settled([self._ending.pop(node.name)])

    def pids(self) -> Mapping[str, int]:
        """Process ids of the agents, by node name."""
        return {name: agent.child.pid for name, agent in self._agents.items()}

    async def _start(self, name: str, job: JobContext) -> Link:
        terms = self._terms_of(name) | {"preparation": preparation_terms(job.preparation)}
        words = [sys.executable, "-m", "qtide.backends.clusters.agent", json.dumps(terms)]
        child = await Child.start(words, asyncio.subprocess.PIPE, self._environment)
        agent = Link(child, name, job.log, self._silence)
        try:
            await agent.greet(job.preparation)
        except BaseException as error:
            await agent.kill()
            if isinstance(error, AgentFailed):
                where = f"; see {job.log.path}" if job.log else ""
                raise NodeUnusable(f"the agent of node {name} did not start{where}") from error
            raise
        return agent

    def _terms_of(self, name: str) -> dict[str, Any]:
        """Limits and supervisor settings of a node; nodes get this machine's cores in turn."""
        per_node, cores = self._options, sorted(os.sched_getaffinity(0))
        limits: dict[str, Any] = {} if per_node.memory is None else {"memory": per_node.memory}
        if per_node.cores is not None:
            first = self._numbers[name] * per_node.cores
            limits["cores"] = [cores[(first + n) % len(cores)] for n in range(per_node.cores)]
        return {"limits": limits, "supervisor": supervisor_terms(self._silence)}


def _cores(options: LocalOptions) -> int:
    return options.cores or len(os.sched_getaffinity(0))


def _kinds(options: LocalOptions) -> list[NodeKind]:
    """The kinds of nodes; what is not said of one is as it would be without kinds."""
    usual = NodeKind(cores=_cores(options), gpus=options.gpus, memory=options.memory)
    return NodeKind.parse_all(options.kind, usual)


def _limits(kind: NodeKind, options: LocalOptions) -> LocalOptions:
    """Limits of a node of one kind."""
    return replace(
        options, memory=kind.memory or options.memory, cores=kind.cores, gpus=kind.gpus, kind=[]
    )


class Local(ClusterKind):
    """Runs nodes as processes of this machine."""

    summary = "processes of this machine, as local or local:4"
    starts_commands = True
    address = "127.0.0.1"
    Options = LocalOptions

    def check(self, setting: Setting) -> None:
        """Reject impossible sizes and limits."""
        options = setting.options(LocalOptions)
        BillingWeights.parse(options.billing)
        if options.kind and setting.argument:
            raise UsageError("--kind says how many nodes there are: use --cluster local")
        setting.check_nodes(self.size(setting))
        check_size(cores=1 if options.cores is None else options.cores, gpus=options.gpus)

    def size(self, setting: Setting) -> int:
        """As many as the argument or the largest kind says."""
        most = max((each.count for each in _kinds(setting.options(LocalOptions))), default=0)
        return most or numbered("local", setting.argument)

    def keeps_agents(self, setting: Setting) -> bool:
        """An agent outlives a grant unless `cold` is set."""
        return not setting.options(LocalOptions).cold

    async def open(self, world: World, setting: Setting) -> Cluster:
        """Open the cluster; agents start when they are needed."""
        assert isinstance(world, RealWorld)
        options = setting.options(LocalOptions)
        if options.kind:
            return KindsCluster(
                [
                    LocalCluster(world, each.count, _limits(each, options), name=each.name)
                    for each in _kinds(options)
                ]
            )
        # only a malleable MPI job may ask for more nodes than the default
        size = max(numbered("local", setting.argument), setting.nodes or 0)
        return LocalCluster(world, size, options)

    def step_jobs(self, setting: Setting, comment: str) -> None:
        """Return None: steps run on the engine's own host."""
        return
