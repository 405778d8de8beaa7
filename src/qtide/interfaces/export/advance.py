"""The step `advance`: plays a program by its journal until every branch of it waits for a phase.

The program runs in virtual time: its clock moves only when nothing else can happen, so a moment
later all the phases that it asks for at the same time are known.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qtide.backends.client.target import Target
from qtide.core.errors import QtideError
from qtide.core.files import write_json
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger, notes
from qtide.core.values import Inline
from qtide.core.world.real import RealWorld
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import World
from qtide.interfaces.export.note import Chosen, Told, TurnNote, outcome_of
from qtide.interfaces.export.parcel import StepInput, StepOutput
from qtide.programs.journal import TARGET, Journal
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.program import Playing
from qtide.programs.replay import CandidateChoice, Replay, ReplayStep, choice_of
from qtide.runs.folder import Call, RunFolder
from qtide.runs.open_site import is_service, qpu_for
from qtide.runs.spec import Spec
from qtide.strategies.strategy import Prospects


class Answered:
    """In place of a strategy: gives the answers there are, and notes the phases without one."""

    def __init__(
        self, world: World, answers: Iterable[StepOutput], wait_for_qpu: Callable[[], float]
    ) -> None:
        self._world = world
        self._wait_for_qpu = wait_for_qpu
        self._answers: dict[tuple[str, str], dict[int, StepOutput]] = {}
        for answer in answers:
            self._answers.setdefault((answer.key, answer.kind), {})[answer.place] = answer
        self.asked: dict[str, Phase] = {}
        """The phases that the program waits for, by their keys."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """The result of a phase; if there is none yet, wait, for longer than anybody does."""
        known = self._answers.get((key, phase.kind), {})
        if len(known) < len(parts(phase)):
            self.asked[key] = phase
            await self._world.future()
        results = [_result(known[place]) for place in sorted(known)]
        return results if isinstance(phase, Classical) else results[0]

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """By the queue of the QPU: how long the task takes is not known to a workflow."""
        return Prospects(self._wait_for_qpu(), 0.0, 0.0, None).choice(phase.patience)

    def unsettled(self, settled: Callable[[str], object]) -> list[StepOutput]:
        """The answers to phases that are not settled."""
        known = self._answers.items()
        return [each for (key, _), all_of in known if not settled(key) for each in all_of.values()]


def parts(phase: Phase) -> list[Phase]:
    """What a phase consists of, each for a step of its own: its tasks, or its payload."""
    return [_alone(task) for task in phase.tasks] if isinstance(phase, Classical) else [phase]


def _alone(task: Task[Any]) -> Classical:
    return Classical((task,))


def _result(answer: StepOutput) -> Any:
    value = answer.value()
    if answer.failed:
        raise value
    return value


Tell = Callable[[ReplayStep], None]

MOMENT = 1.0
"""Virtual seconds after which whatever can happen at once has happened."""


@dataclass(frozen=True)
class Stand:
    """Where a program stands: what it asks for, or how it ended."""

    phases: dict[str, Phase] = field(default_factory=dict)
    kept: list[StepOutput] = field(default_factory=list)
    """Failures that the program has not caught yet: the journal has only those it did."""
    outcome: dict[str, Any] | None = None
    choices: list[Chosen] = field(default_factory=list)
    """What was chosen on the way, and why."""


def advance(run: RunFolder, journal: Path, answers: Sequence[Path], folder: Path) -> dict[str, Any]:
    """Play the run with these answers; what the next steps need is written to the folder.

    Returns the outputs of the step, as the workflow declares them.
    """
    clock = RealWorld(run.spec.time_scale)
    began, given = clock.now(), [StepOutput.read(file) for file in answers]
    shutil.copyfile(journal, folder / "journal")
    call = Call.read(run.path, run.values, run.spec)
    steps: list[ReplayStep] = []
    with closing(Journal(folder / "journal", call.program.name)) as opened:
        before = len(opened)
        stand = play(run, call, opened, given, steps.append)
        stand, tasks, payloads = sent(run, stand, clock.now(), folder)
        told = [Told.of(step) for step in steps if step.state != "replayed"]
        keys = {step.key: None for step in told}
        places = [place for key in keys for place in (choice_of(key), key)]
        records = [each for place in places if (each := opened.find(place))]
    note = TurnNote(
        before, (began, clock.now()), told, records, given, stand.outcome, stand.choices
    )
    note.publish(run, call.program.name)
    kept = [answer.again().write(folder) for answer in stand.kept]
    write_json(folder / "outcome.json", stand.outcome or {})
    return {
        "grown": folder / "journal",
        "unfinished": stand.outcome is None,
        "outcome": folder / "outcome.json",
        "kept": kept,
        "tasks": tasks,
        "payloads": payloads,
        "classical": bool(tasks),
        "quantum": bool(payloads),
    }


def play(
    run: RunFolder,
    call: Call,
    journal: Journal,
    given: list[StepOutput],
    tell: Tell = lambda _: None,
) -> Stand:
    """Where the program stands with these answers; what is new is in the journal then."""
    world = VirtualWorld()
    answered = Answered(world, given, lambda: _wait_for_qpu(run.spec))
    ledger = Ledger(run.name, world.now)
    job = JobContext(run.name, ledger, Inline(), run.spec.seed)
    replay = Replay(world, answered, journal, job, tell)
    playing = call.prepare(seed=run.spec.seed, folder=run.path.absolute(), target=_target(journal))
    with closing(playing):
        stand = world.run(_until_it_waits(world, replay, playing, answered, journal))
    choices = [Chosen(each.what, each.lane, each.why) for each in notes(ledger.events)]
    return replace(stand, choices=choices)


def sent(
    run: RunFolder, stand: Stand, at: float, folder: Path
) -> tuple[Stand, list[Path], list[Path]]:
    """Write what steps are to do, tasks and payloads; what cannot be written ends the run."""
    tasks: list[Path] = []
    payloads: list[Path] = []
    try:
        for key, phase in stand.phases.items():
            for place, part in enumerate(parts(phase)):
                file = StepInput(run.name, key, place, part, at, run.spec).write(folder)
                (payloads if isinstance(phase, Quantum) else tasks).append(file)
    except QtideError as error:
        return Stand(outcome=outcome_of(error=error)), [], []
    return stand, tasks, payloads


async def _until_it_waits(
    world: VirtualWorld, replay: Replay, playing: Playing, answered: Answered, journal: Journal
) -> Stand:
    """How the program ended; if it did not, what it waits for."""
    work = world.start(replay.play(playing))
    await world.first_of([work, world.start(world.sleep(MOMENT))])
    if not work.done():
        asked = dict(answered.asked)
        await world.cancel([work])
        return Stand(asked, answered.unsettled(journal.find))
    try:
        return Stand(outcome=outcome_of(work.result()))
    except Exception as error:
        return Stand(outcome=outcome_of(error=error))


def _wait_for_qpu(spec: Spec) -> float:
    """How long a payload would wait now at the service; a device of the step's own is free."""
    if not is_service(spec.qpu):
        return 0.0
    world = RealWorld(spec.time_scale)
    return world.run(qpu_for(spec, world).expected_wait(leased=True))


def _target(journal: Journal) -> Target | None:
    """The device as it was when the workflow was written."""
    record = journal.find(TARGET)
    return Target(**record.outcome) if record else None
