"""The driver: plays one run on a site, from its folder and back into it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from qtide.errors import QtideError
from qtide.jobs.job import Job
from qtide.jobs.traceback import own_lines
from qtide.ledger.ledger import Ledger
from qtide.programs.arguments import parse
from qtide.programs.journal import Journal
from qtide.programs.load import load
from qtide.programs.program import Playing, Program
from qtide.programs.replay import Replay, Step
from qtide.runs.folder import RunFolder
from qtide.runs.site import Ground
from qtide.runs.spec import Spec
from qtide.strategies import Site, Strategy, Terms, strategy

Tell = Callable[[str, Step], None]
"""Hears of each step of a run of that name."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a value, or with an error."""

    run: RunFolder
    value: Any = None
    error: Exception | None = None


async def drive(run: RunFolder, ground: Ground, tell: Tell) -> Outcome:
    """Play a run to its end. Whatever the end, everything it held is given back."""
    program = load(run.spec.program)
    with (
        closing(Journal(run.journal, program.name)) as journal,
        closing(prepare(program, run)) as playing,
        closing(Ledger(run.name, ground.world.now, run.ledger)) as ledger,
    ):
        job = Job(run.name, ledger, run.values, run.spec.seed)
        try:
            run.unfinish()
            run.presence.arrive()
            performer = _performer(run.spec, program, ground, job)
            replay = Replay(ground.world, performer, journal, job, partial(tell, run.name))
            work = _play(performer, replay, playing, ledger, run.spec.strategy)
            value = await run.presence.during(ground.world, work)
            run.finish({"value": plain(value)})
            return Outcome(run, value)
        except Exception as error:
            with suppress(OSError):  # a full disk may be the very error
                run.finish({"error": sentence(error)})
            return Outcome(run, error=error)


def prepare(program: Program, run: RunFolder) -> Playing:
    """Call the program with the run's own arguments, its seed and its folder."""
    spec = run.spec
    args, kwargs = parse(program, spec.words)
    return program.prepare(args, kwargs, seed=spec.seed, folder=run.path)


def _performer(spec: Spec, program: Program, ground: Ground, job: Job) -> Strategy:
    size = ground.cluster.size
    nodes = spec.nodes or min(program.nodes or size, size)
    names = {"expand_timeout", "favour", "idle_share"}
    given = {name: value for name, value in spec.options.items() if name in names}
    terms = Terms(nodes, **given)
    return strategy(spec.strategy)(Site(ground.world, ground.cluster, ground.qpu, job), terms)


async def _play(
    performer: Strategy, replay: Replay, playing: Playing, ledger: Ledger, label: str
) -> Any:
    with ledger.span("run", "driver", label):
        try:
            await performer.open()
            return await replay.play(playing)
        finally:
            await performer.close()


def plain(value: Any) -> Any:
    """A value as JSON can show it."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return repr(value)


def sentence(error: BaseException) -> str:
    """An error as the user reads it: what it says, and the lines of the user's that it passed."""
    if isinstance(error, QtideError):
        return str(error)
    notes: list[str] = getattr(error, "__notes__", [])
    lines = [f"  {line}" for line in own_lines(error)]
    return "\n".join([f"{type(error).__name__}: {error}", *notes, "in the program", *lines])
