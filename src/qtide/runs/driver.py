"""The driver: executes runs on a site and writes their folders."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from qtide.backends.clusters.pretend import load, rehearse
from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.errors import PhaseError, QtideError, own_lines
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.log import Log
from qtide.core.plugins import Plugins
from qtide.programs.journal import TARGET, Journal, JournalRecord
from qtide.programs.phase import Classical, Task
from qtide.programs.replay import Replay, ReplayStep
from qtide.runs.earlier import recall, recorded, remember
from qtide.runs.folder import Call, RunFolder, close_open_spans
from qtide.runs.open_site import is_service, is_virtual, leases, opened, world_for
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.static import Static
from qtide.strategies.strategy import Assignment, Strategy, strategy

if TYPE_CHECKING:
    from qtide.backends.client.target import Target

Tell = Callable[[str, ReplayStep, float], None]
"""Called with a run's name, a step, and the time of the step on the run's clock."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a value or an error."""

    run: RunFolder
    value: Any = None
    error: Exception | None = None


Ended = Callable[[list[Outcome]], None]
"""Called with the outcomes of a group when it ends."""


def play(run: RunFolder, tell: Tell) -> Outcome:
    """Execute one run to its end; a run that is already done is left as it is."""
    if run.state == "done" and not run.spec.session:  # a session has no program and is refused
        return Outcome(run, run.value)
    close_open_spans(run)
    engine = engine_of(run.spec)
    if engine is not None:
        return engine.drive(run, tell)
    (outcomes,) = play_groups([[run]], tell, lambda _: None)
    return outcomes[0]


@dataclass(frozen=True)
class GroupTerms:
    """How the runs of a group differ."""

    apart: float = 0.0
    """Seconds from the begin of one run to that of the next."""
    own_qpus: bool = False
    """Whether each run has a QPU of its own; otherwise, they share one."""


ALIKE = GroupTerms()


def play_groups(
    groups: Sequence[Sequence[RunFolder]],
    tell: Tell,
    ended: Ended,
    warm_up: RunFolder | None = None,
    terms: GroupTerms = ALIKE,
) -> list[list[Outcome]]:
    """Execute the groups one after another, and the runs of each group concurrently.

    All use the cluster named in the first run's options; each group has its own QPU. In real time,
    groups share only warm agents; in virtual time, each group has its own world.
    """
    if is_virtual(groups[0][0].spec):
        sites = (_on_one_site([each], tell, ended, terms=terms) for each in groups)
        return [outcomes for found in sites for outcomes in found]
    return _on_one_site(groups, tell, ended, warm_up, terms)


def _on_one_site(
    groups: Sequence[Sequence[RunFolder]],
    tell: Tell,
    ended: Ended,
    warm_up: RunFolder | None = None,
    terms: GroupTerms = ALIKE,
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
        shared = place(site, runs[0])
        outcomes = await world.all_of(
            [
                begun(place(site, run) if terms.own_qpus else shared, run, terms.apart * number)
                for number, run in enumerate(runs)
            ]
        )
        if durations is not None:
            for run in runs:
                run.note_durations(durations.used, durations.missing)
        ended(outcomes)
        return outcomes

    def place(site: Site, run: RunFolder) -> Site:
        return Site(world, site.cluster, lambda: site.qpu.renewed(leases(run.spec)))

    async def begun(site: Site, run: RunFolder, after: float) -> Outcome:
        if after:
            await world.sleep(after)
        return await drive(run, site, tell)

    return world.run(play_all())


async def drive(
    run: RunFolder, site: Site, tell: Tell, kind: type[Strategy] | None = None
) -> Outcome:
    """Execute a run to its end, then release everything it held, however it ended.

    `kind` replaces the strategy that the run names.
    """
    world, spec = site.world, run.spec
    call = run.call or Call.read(run.path, run.values, spec)
    program = call.program
    with closing(Journal(run.journal, program.name)) as journal:
        target = None
        if program.wants_target or (program.payload and is_service(spec.qpu)):
            target = await journaled_target(journal, site.qpu.describe)
            target.check(program.payload)
        with (
            closing(call.prepare(seed=spec.seed, folder=run.path, target=target)) as playing,
            closing(Ledger(run.name, world.now, run.ledger)) as ledger,
        ):
            lessons = recall(run)
            log = Log(run.log, (lambda: f"{world.now():.3f}") if world.is_virtual else None)
            job = JobContext(
                run.name, ledger, run.values, spec.seed, lessons.preparation, log, spec.commands
            )
            size = site.cluster.size
            nodes = spec.nodes or min(program.nodes or size, size)
            assignment = Assignment(site, job, nodes, spec.default_needs(program.needs))
            performer = (
                kind(assignment) if kind else strategy(spec.strategy, assignment, spec.options)
            )
            lessons.teach(performer.forecast)

            def told(step: ReplayStep) -> None:
                tell(run.name, step, world.now())

            async def execute() -> Any:
                replay = Replay(world, performer, journal, job, told)
                rate = site.cluster.kind.whole_rate
                with ledger.span("run", "driver", spec.strategy, rate=rate):
                    try:
                        await performer.begin()
                        return await replay.play(playing)
                    finally:
                        await performer.close()

            try:
                run.unfinish()
                run.presence.arrive(spec.cluster.partition(":")[0])
                value = await run.presence.during(world, execute(), ledger.beat)
                run.keep_value(value)
                run.finish({"value": plain(value)})
                return Outcome(run, value)
            except Exception as error:
                with suppress(OSError):  # the disk may be full
                    run.finish({"error": sentence(error)})
                return Outcome(run, error=error)
            finally:
                remember(run, job.preparation, performer.forecast)


async def journaled_target(
    journal: Journal, describe: Callable[[], Awaitable[dict[str, Any]]]
) -> Target:
    """Read the target from the journal; if there is none, record the current device there."""
    from qtide.backends.client.target import Target  # few programs want one

    record = journal.find(TARGET)
    if record is None:
        found = await describe()
        kept = {name: found[name] for name in ("name", "kind", "properties")}
        record = JournalRecord(TARGET, TARGET, kept)
        journal.append(record)
    return Target(**record.outcome)


def plain(value: Any) -> Any:
    """Convert a value to what JSON can represent, or else to its repr."""
    try:
        return json.loads(json.dumps(value, default=_number))
    except (TypeError, ValueError):
        return repr(value)


def _number(value: Any) -> Any:
    """A scalar of NumPy as Python's own."""
    if getattr(value, "shape", None) != ():
        raise TypeError(f"JSON has nothing for {type(value).__name__}")
    return value.item()


def sentence(error: BaseException) -> str:
    """Format an error for the user: its message, and the user's own lines in its traceback."""
    if isinstance(error, QtideError):
        return str(error)
    notes: list[str] = getattr(error, "__notes__", [])
    lines = [f"  {line}" for line in own_lines(error)]
    place = ["in the program", *lines] if lines else []
    return "\n".join([f"{type(error).__name__}: {error}".removesuffix(": "), *notes, *place])


def remedy(error: BaseException) -> str:
    """Say what has to change before a failed run is resumed."""
    if isinstance(error, PayloadRefused):
        return "change the payload (a run keeps its device: for another one, start a new run)"
    return "fix it"


class Engine(Protocol):
    """A workflow engine that runs the phases of a program in place of qtide."""

    def check(self, spec: Spec) -> None:
        """Refuse what the engine cannot run, with a clear message."""

    def drive(self, run: RunFolder, tell: Tell) -> Outcome:
        """Execute a run to its end, then release everything it held, however it ended."""


ENGINES: Plugins[type[Engine]] = Plugins("qtide.engines", "workflow engine")


def engine_of(spec: Spec) -> Engine | None:
    """The workflow engine a run names; None if qtide drives the run."""
    name = spec.options.get("engine")
    return ENGINES.load(name)() if name else None


class WarmUp(Static):
    """Warms up all nodes of the cluster if agents outlive an allocation; otherwise the job's nodes.

    On Slurm each allocation starts a new process; only the files it reads stay warm, in each host's
    page cache, and the compiled modules beside them.
    """

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        cluster = assignment.site.cluster
        nodes = cluster.size if cluster.keeps_agents else assignment.nodes
        super().__init__(replace(assignment, nodes=nodes), options)
        self._called: set[str] = set()

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks, then each function not seen before once on every node, concurrently."""
        results = await super().classical(phase, key)
        new = {task.name: task for task in phase.tasks if task.name not in self._called}
        self._called |= new.keys()
        for each in new.values():
            with suppress(QtideError, PhaseError):  # a lost node needs no warm-up
                nodes = self.pools[self.kind_of(each)].most
                await self.run_tasks(Classical((_rehearsal(each, nodes),)), key)
        return results


def _rehearsal(task: Task[Any], nodes: int) -> Task[Any]:
    """Rehearse a task on all nodes; only load an SPMD one, as its ranks may wait for each other."""
    terms: dict[str, Any] = {"nodes": nodes, "resources": task.resources}
    if task.nodes > 1 or task.malleable:
        return Task(load, (task.function,), **terms)
    called = (task.function, task.args, task.kwargs)
    return Task(rehearse, called, limit=task.limit, **terms)
