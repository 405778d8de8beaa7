"""The driver: executes one run on a site, and writes its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from qtide.backends.clusters.kind import CLUSTERS
from qtide.backends.clusters.pretend import load, rehearse
from qtide.backends.leases.qpu import Qpu
from qtide.core.errors import PhaseError, QtideError, own_lines
from qtide.core.files import Locked, lock
from qtide.core.job import JobContext
from qtide.core.ledger import Event, Ledger, append, left_open, read_events
from qtide.core.log import Log
from qtide.core.plugins import Plugins
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World
from qtide.programs.journal import Journal
from qtide.programs.phase import Classical, Task
from qtide.programs.program import Playing, Program
from qtide.programs.replay import Replay, ReplayStep
from qtide.programs.target import journaled
from qtide.runs.earlier import recall, recorded, remember
from qtide.runs.folder import Call, RunFolder
from qtide.runs.open_site import is_virtual, leases, opened, world_for
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.static import Static
from qtide.strategies.strategy import Assignment, Strategy, strategy


def close_open_spans(run: RunFolder) -> None:
    """Close what a dead driver left open in the ledger, as far as it is known when that ended."""
    with suppress(OSError, QtideError, Locked):
        opened = _opened(run)
        if opened and run.state != "running":
            ends = _ends(run, opened)
            if ends:
                _close(run, opened, ends)


def _opened(run: RunFolder) -> dict[int, Event]:
    """What was held in a job of the cluster, which the label names."""
    if not run.ledger.exists():
        return {}
    found = left_open(read_events(run.ledger))
    return {
        number: event
        for number, event in found.items()
        if event["what"] == "held" and event.get("label", "").isdecimal()
    }


def _ends(run: RunFolder, opened: dict[int, Event]) -> dict[int, float]:
    """When each span ended, on the run's clock."""
    spec = run.spec
    kind = CLUSTERS.load(spec.cluster.partition(":")[0])
    jobs = {int(event["label"]) for event in opened.values()}
    known = kind.ends(jobs, run.created)
    return {
        number: max(event["t"], known[int(event["label"])] / spec.time_scale)
        for number, event in opened.items()
        if int(event["label"]) in known
    }


def _close(run: RunFolder, opened: dict[int, Event], ends: dict[int, float]) -> None:
    """Write it, unless another driver has taken over meanwhile."""
    file = os.open(run.journal, os.O_RDONLY)
    try:
        lock(file)
        if _opened(run) == opened:
            append(run.ledger, ({"t": end, "end": number} for number, end in ends.items()))
    finally:
        os.close(file)


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


Tell = Callable[[str, ReplayStep, float], None]
"""Called with a run's name, each of its steps, and when that was on the run's clock."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a value, or with an error."""

    run: RunFolder
    value: Any = None
    error: Exception | None = None


async def drive(
    run: RunFolder, site: Site, tell: Tell, kind: type[Strategy] | None = None
) -> Outcome:
    """Execute a run to its end. However it ends, everything it held is given back.

    Its strategy is the one that it names, unless a `kind` is given.
    """
    call = run.call or Call.read(run.path, run.values, run.spec)
    program = call.program
    with (
        closing(Journal(run.journal, program.name)) as journal,
        closing(await prepare(call, run, journal, site.qpu)) as playing,
        closing(Ledger(run.name, site.world.now, run.ledger)) as ledger,
    ):
        lessons = recall(run)
        log = Log(run.log, _stamp(site.world))
        job = JobContext(run.name, ledger, run.values, run.spec.seed, lessons.preparation, log)
        performer = _strategy(run.spec, program, site, job, kind)
        lessons.teach(performer.forecast)
        try:
            run.unfinish()
            run.presence.arrive()
            replay = Replay(site.world, performer, journal, job, _telling(tell, run, site))
            work = _execute(performer, replay, playing, ledger, run.spec.strategy)
            value = await run.presence.during(site.world, work, ledger.beat)
            run.keep_value(value)
            run.finish({"value": plain(value)})
            return Outcome(run, value)
        except Exception as error:
            with suppress(OSError):  # the error itself may be a full disk
                run.finish({"error": sentence(error)})
            return Outcome(run, error=error)
        finally:
            remember(run, job.preparation, performer.forecast)


async def prepare(call: Call, run: RunFolder, journal: Journal, qpu: Qpu) -> Playing:
    """Call the program with the run's own arguments, its seed, its folder and its target."""
    wanted = call.program.wants_target
    target = await journaled(journal, qpu.describe) if wanted else None
    return call.prepare(seed=run.spec.seed, folder=run.path, target=target)


def _telling(tell: Tell, run: RunFolder, site: Site) -> Callable[[ReplayStep], None]:
    """Tells of a step what its listener needs to know beside."""
    return lambda step: tell(run.name, step, site.world.now())


def _strategy(
    spec: Spec, program: Program, site: Site, job: JobContext, kind: type[Strategy] | None
) -> Strategy:
    size = site.cluster.size
    nodes = spec.nodes or min(program.nodes or size, size)
    assignment = Assignment(site, job, nodes)
    return kind(assignment) if kind else strategy(spec.strategy, assignment, spec.options)


async def _execute(
    performer: Strategy, replay: Replay, playing: Playing, ledger: Ledger, label: str
) -> Any:
    with ledger.span("run", "driver", label):
        try:
            await performer.open()
            return await replay.play(playing)
        finally:
            await performer.close()


def _stamp(world: World) -> Callable[[], str] | None:
    """How lines of the log are dated: by the time of day, or by the virtual clock."""
    return None if isinstance(world, RealWorld) else lambda: f"{world.now():.3f}"


def plain(value: Any) -> Any:
    """A value in a form that JSON can represent."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return repr(value)


def sentence(error: BaseException) -> str:
    """An error for the user: its message, and the lines of the user's code in its traceback."""
    if isinstance(error, QtideError):
        return str(error)
    notes: list[str] = getattr(error, "__notes__", [])
    lines = [f"  {line}" for line in own_lines(error)]
    place = ["in the program", *lines] if lines else []
    return "\n".join([f"{type(error).__name__}: {error}", *notes, *place])


class Engine(Protocol):
    """What qtide asks of an engine."""

    def check(self, spec: Spec) -> None:
        """Refuse what it cannot run, with a sentence."""

    def drive(self, run: RunFolder, tell: Tell) -> Outcome:
        """Execute a run to its end; however it ends, what it held is given back."""


ENGINES: Plugins[type[Engine]] = Plugins("qtide.engines", "workflow engine")


def engine_of(spec: Spec) -> Engine | None:
    """The engine that a run names; None if qtide drives it."""
    name = spec.options.get("engine")
    return ENGINES.load(name)() if name else None


Ended = Callable[[list[Outcome]], None]
"""Called with the outcomes of each group."""


def play(run: RunFolder, tell: Tell) -> Outcome:
    """Execute one run to its end."""
    close_open_spans(run)
    engine = engine_of(run.spec)
    if engine is not None:
        return engine.drive(run, tell)
    (outcomes,) = play_groups([[run]], tell, lambda _: None)
    return outcomes[0]


def play_groups(
    groups: Sequence[Sequence[RunFolder]],
    tell: Tell,
    ended: Ended,
    warm_up: RunFolder | None = None,
) -> list[list[Outcome]]:
    """Execute the runs of each group concurrently, and one group after the other.

    All are on the cluster that the first run's options name, each group with its own QPU. In real
    time they share warm agents, and nothing else; in virtual time, each group has its own world.
    """
    if is_virtual(groups[0][0].spec):
        return [outcomes for each in groups for outcomes in _session([each], tell, ended)]
    return _session(groups, tell, ended, warm_up)


def _session(
    groups: Sequence[Sequence[RunFolder]],
    tell: Tell,
    ended: Ended,
    warm_up: RunFolder | None = None,
) -> list[list[Outcome]]:
    first = groups[0][0]
    spec, device_log = first.spec, first.path / "device.log"
    world, durations = world_for(spec), recorded(spec)

    async def play_all() -> list[list[Outcome]]:
        async with opened(spec, world, device_log, durations) as site:
            if warm_up is not None:
                ended([await drive(warm_up, site, tell, WarmUp)])
            return [await group(site, runs) for runs in groups]

    async def group(site: Site, runs: Sequence[RunFolder]) -> list[Outcome]:
        site.cluster.forget()
        place = Site(world, site.cluster, site.qpu.renewed(leases(runs[0].spec)))
        outcomes = await world.all_of([drive(run, place, tell) for run in runs])
        for run in runs:
            run.note_durations(durations.used, durations.missing)
        ended(outcomes)
        return outcomes

    return world.run(play_all())
