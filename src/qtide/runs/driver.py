"""The driver: executes one run on a site, and writes its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from qtide.errors import QtideError
from qtide.jobs.job import Job
from qtide.jobs.log import Log
from qtide.jobs.traceback import own_lines
from qtide.leases.qpu import Qpu
from qtide.ledger.ledger import Ledger
from qtide.programs.journal import Journal
from qtide.programs.program import Playing, Program
from qtide.programs.replay import Replay, Step
from qtide.programs.target import journaled
from qtide.runs.call import Call
from qtide.runs.folder import RunFolder
from qtide.runs.lessons import recall, remember
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, Strategy, strategy
from qtide.world.real import RealWorld
from qtide.world.world import World

Tell = Callable[[str, Step, float], None]
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
        job = Job(run.name, ledger, run.values, run.spec.seed, lessons.preparation, log)
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


def _telling(tell: Tell, run: RunFolder, site: Site) -> Callable[[Step], None]:
    """Tells of a step what its listener needs to know beside."""
    return lambda step: tell(run.name, step, site.world.now())


def _strategy(
    spec: Spec, program: Program, site: Site, job: Job, kind: type[Strategy] | None
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
