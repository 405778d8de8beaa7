"""The step `advance`: replays a program from its journal until every branch waits for a phase.

The program runs in virtual time. Its clock advances only when nothing else can happen, so once it
advances, all phases that the program requests at the same time are known.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
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
from qtide.interfaces.export.step_files import CarriedFiles, StepInput, StepOutput
from qtide.interfaces.export.turn_note import NotedChoice, NotedStep, TurnNote, outcome_of
from qtide.programs.journal import TARGET, Journal
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.replay import CandidateChoice, Replay, ReplayStep, choice_of
from qtide.runs.folder import Call, RunFolder
from qtide.runs.open_site import is_service, qpu_for
from qtide.runs.spec import Spec
from qtide.strategies.strategy import Prospects

MOMENT = 1.0
"""Virtual seconds after which every branch of the program waits for a phase or has ended."""

Tell = Callable[[ReplayStep], None]


def advance(run: RunFolder, journal: Path, answers: Sequence[Path], folder: Path) -> dict[str, Any]:
    """Run one turn: replay the run with these answers and write the inputs of the next steps.

    Return the outputs of the step, as the workflow declares them.
    """
    clock = RealWorld(run.spec.time_scale)
    began, given = clock.now(), [StepOutput.read(file) for file in answers]
    shutil.copyfile(journal, folder / "journal")
    call = Call.read(run.path, run.values, run.spec)
    steps: list[ReplayStep] = []
    with closing(Journal(folder / "journal", call.program.name)) as opened:
        before = len(opened)
        state = play(run, call, opened, given, steps.append)
        state, tasks, payloads = write_inputs(run, state, clock.now(), folder)
        noted = [NotedStep.of(step) for step in steps if step.state != "replayed"]
        keys = {step.key: None for step in noted}
        places = [place for key in keys for place in (choice_of(key), key)]
        records = [each for place in places if (each := opened.find(place))]
    during = (began, clock.now())
    note = TurnNote(before, during, noted, records, given, state.outcome, state.choices)
    note.publish(run, call.program.name)
    kept = [answer.counted().write(folder) for answer in state.unused]
    write_json(folder / "outcome.json", state.outcome or {})
    return {
        "grown": folder / "journal",
        "unfinished": state.outcome is None,
        "outcome": folder / "outcome.json",
        "kept": kept,
        "tasks": tasks,
        "payloads": payloads,
        "classical": bool(tasks),
        "quantum": bool(payloads),
    }


@dataclass(frozen=True)
class ProgramState:
    """A program's state after a turn: the phases it waits for, or how it ended."""

    phases: dict[str, Phase] = field(default_factory=dict)
    unused: list[StepOutput] = field(default_factory=list)
    """Answers not yet in the journal: failures enter it only once the program catches them."""
    outcome: dict[str, Any] | None = None
    choices: list[NotedChoice] = field(default_factory=list)


def play(
    run: RunFolder,
    call: Call,
    journal: Journal,
    given: list[StepOutput],
    tell: Tell = lambda _: None,
) -> ProgramState:
    """Replay the program with these answers; add the phases they complete to the journal."""
    world = VirtualWorld()
    kept = run.path.absolute() / "commands"
    answers = StepAnswers(world, given, kept, lambda: _wait_for_qpu(run.spec))
    ledger = Ledger(run.name, world.now)
    job = JobContext(run.name, ledger, Inline(), run.spec.seed)
    replay = Replay(world, answers, journal, job, tell)
    target = journal.find(TARGET)  # the device at the time the workflow was written
    playing = call.prepare(
        seed=run.spec.seed,
        folder=run.path.absolute(),
        target=Target(**target.outcome) if target else None,
    )

    async def until_it_waits() -> ProgramState:
        work = world.start(replay.play(playing))
        await world.first_of([work, world.start(world.sleep(MOMENT))])
        choices = [NotedChoice(each.what, each.lane, each.why) for each in notes(ledger.events)]
        if not work.done():
            waiting = dict(answers.missing)
            await world.cancel([work])
            return ProgramState(waiting, answers.unused(journal), choices=choices)
        try:
            return ProgramState(outcome=outcome_of(work.result()), choices=choices)
        except Exception as error:
            return ProgramState(outcome=outcome_of(error=error), choices=choices)

    with closing(playing):
        return world.run(until_it_waits())


def write_inputs(
    run: RunFolder, state: ProgramState, at: float, folder: Path
) -> tuple[ProgramState, list[Path], list[Path]]:
    """Write the inputs of the next steps: tasks and payloads.

    If one cannot be written, the run fails and no step is left to do.
    """
    tasks: list[Path] = []
    payloads: list[Path] = []
    try:
        for key, phase in state.phases.items():
            for place, part in enumerate(_parts(phase)):
                file = StepInput(run.name, key, place, part, at, run.spec).write(folder)
                (payloads if isinstance(phase, Quantum) else tasks).append(file)
    except QtideError as error:
        return ProgramState(outcome=outcome_of(error=error)), [], []
    return state, tasks, payloads


class StepAnswers:
    """Answers phases with the results of earlier steps, and lists the phases without an answer."""

    def __init__(
        self,
        world: World,
        answers: Iterable[StepOutput],
        kept: Path,
        wait_for_qpu: Callable[[], float],
    ) -> None:
        self._world = world
        self._kept = kept
        self._wait_for_qpu = wait_for_qpu
        self._answers: dict[tuple[str, str], dict[int, StepOutput]] = {}
        for answer in answers:
            self._answers.setdefault((answer.key, answer.kind), {})[answer.place] = answer
        self.missing: dict[str, Phase] = {}
        """The phases the program waits for, by key."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """Return the result of a phase; if there is none yet, wait forever: the turn then ends."""
        known = self._answers.get((key, phase.kind), {})
        if len(known) < len(_parts(phase)):
            self.missing[key] = phase
            await self._world.future()
        results = [self._value(known[place]) for place in sorted(known)]
        return results if isinstance(phase, Classical) else results[0]

    def _value(self, answer: StepOutput) -> Any:
        found = answer.value()
        if isinstance(found, CarriedFiles):
            return found.unpacked(self._kept / f"{answer.key}.{answer.place}")
        return found

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Choose by the QPU's queue alone: a workflow does not know how long the task takes."""
        return Prospects(self._wait_for_qpu(), 0.0, 0.0, None).choice(phase.patience)

    def unused(self, journal: Journal) -> list[StepOutput]:
        """Return the answers to phases that are not in the journal."""
        return [
            answer
            for (key, _), answers in self._answers.items()
            if not journal.find(key)
            for answer in answers.values()
        ]


def _parts(phase: Phase) -> list[Phase]:
    """Divide a phase into parts with one step each: its tasks or its payload."""
    return [Classical((task,)) for task in phase.tasks] if isinstance(phase, Classical) else [phase]


def _wait_for_qpu(spec: Spec) -> float:
    """Ask the service for a payload's current wait; a step's own device is always free."""
    if not is_service(spec.qpu):
        return 0.0
    world = RealWorld(spec.time_scale)
    return world.run(qpu_for(spec, world).expected_wait(leased=True))
