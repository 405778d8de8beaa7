"""Replay: drives a program through its phases, taking results from the journal where it has them.

A phase's key is its place in the program: the third await is "3"; if that is a `together()`, the
second await of its first part is "3.1.2". Keys do not depend on timing, so a replay finds each
phase whatever the order in which they ended.
"""

from __future__ import annotations

import sys
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal, NoReturn, Protocol

from qtide.core.errors import BackendFailed, NotEnoughNodes, PhaseError, QtideError, foreign
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Packed, Unstorable
from qtide.core.world.world import World
from qtide.programs.journal import Journal, JournalRecord
from qtide.programs.phase import Classical, Phase, Quantum, Task, Together, Unawaited


def choice_of(key: str) -> str:
    """Journal key of a phase's choice; keys of phases begin with a number."""
    return f"choice {key}"


@dataclass(frozen=True)
class CandidateChoice:
    """What to run, the QPU or the task, and why."""

    chosen: Literal["qpu", "task"]
    why: str
    patience: float | None = None
    """Seconds after which the task runs instead if the QPU has not begun."""

    def as_json(self) -> dict[str, Any]:
        """Convert to the journal's form."""
        return {"chosen": self.chosen, "why": self.why, "patience": self.patience}

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> CandidateChoice:
        """Read from the journal's form."""
        return CandidateChoice(kept["chosen"], kept["why"], kept["patience"])


class ChoiceStore(Protocol):
    """A journal or a substitute for it."""

    def find(self, key: str) -> JournalRecord | None:
        """The record at `key`."""

    def append(self, record: JournalRecord) -> None:
        """Write a record durably."""


class Choices:
    """A run's choices, kept in its journal."""

    def __init__(self, journal: ChoiceStore) -> None:
        self._journal = journal

    def find(self, key: str) -> CandidateChoice | None:
        """The choice for the phase at `key`, if there is one."""
        record = self._journal.find(choice_of(key))
        return None if record is None else CandidateChoice.from_json(record.outcome)

    def keep(self, key: str, asked: str, choice: CandidateChoice) -> None:
        """Write a choice durably; a later choice for the same phase replaces it."""
        self._journal.append(JournalRecord(choice_of(key), asked, choice.as_json()))


class Performer(Protocol):
    """Runs phases; implemented by strategies."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run the tasks of a phase on nodes, or its payload on the QPU."""

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Choose whether to run the QPU or the task."""


class Candidates:
    """Runs a job's phases and records its choices."""

    def __init__(self, performer: Performer, ledger: Ledger, choices: Choices) -> None:
        self._performer = performer
        self._ledger = ledger
        self._choices = choices

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run a phase on the QPU or, if chosen, as its task, and return the result."""
        if isinstance(phase, Quantum) and phase.otherwise is not None:
            return await self._either(phase, phase.otherwise, key)
        return await self._perform(phase, key, phase.label)

    async def _either(self, phase: Quantum, otherwise: Task[Any], key: str) -> Any:
        choice = self._choices.find(key)
        if choice is None:
            choice = self._keep(phase, key, await self._performer.choose(phase, otherwise, key))
        if choice.chosen == "qpu":
            patient = replace(phase, patience=choice.patience)
            try:
                return await self._perform(patient, key, phase.label)
            except (PhaseError, NotEnoughNodes, BackendFailed) as error:
                self._keep(phase, key, CandidateChoice("task", str(error)))
        label = f"{otherwise.name} instead of {phase.label}"
        return (await self._perform(Classical((otherwise,)), key, label))[0]

    async def _perform(self, phase: Phase, key: str, label: str) -> Any:
        with self._ledger.span("phase", phase.kind, label, key):
            return await self._performer.perform(phase, key)

    def _keep(self, phase: Quantum, key: str, choice: CandidateChoice) -> CandidateChoice:
        """Record a choice before anything of it begins."""
        self._choices.keep(key, f"quantum {phase.label}", choice)
        self._ledger.explain(f"chose the {choice.chosen}", f"phase/{key}", choice.why)
        return choice


SIDE_BY_SIDE = "run phases side by side with `await together(a, b)`"
LIMIT = "limit a task or a payload with `await task(f, ...).within(seconds)`"
CALL = "let a task do it: `await task(f, ...)`"
ADVICE = {
    "sleep": "let a task wait: `await task(time.sleep, seconds)`",
    **dict.fromkeys(("timeout", "timeout_at", "wait_for", "Timeout"), LIMIT),
    **dict.fromkeys(("gather", "create_task", "ensure_future", "TaskGroup", "wait"), SIDE_BY_SIDE),
    **dict.fromkeys(("as_completed", "shield"), SIDE_BY_SIDE),
}


class NotInAProgram(QtideError):  # noqa: N818 - what is wrong
    """The program uses asyncio."""


class NoLoop:
    """Placeholder for asyncio's running event loop that refuses every use."""

    def create_task(self, work: Any, **_: Any) -> NoReturn:
        """Refuse, closing the coroutine so that Python does not warn about it."""
        if isinstance(work, Coroutine):
            work.close()
        raise _refusal("create_task")

    def __getattr__(self, name: str) -> NoReturn:
        raise _refusal(name)

    def __hash__(self) -> NoReturn:  # asyncio looks up the current task by the loop
        raise _refusal("current_task")


NO_LOOP = NoLoop()


class without_loop:  # noqa: N801 - a context manager; a generator would take twice as long
    """Context in which asyncio finds `NO_LOOP` as the running event loop."""

    def __enter__(self) -> None:
        self._usual = _get_running_loop()
        _set_running_loop(NO_LOOP)  # type: ignore[arg-type]  # not a real loop

    def __exit__(self, *_: object) -> None:
        _set_running_loop(self._usual)


def refusal(name: str, place: str) -> NotInAProgram:
    """Error for the use of an asyncio function."""
    return NotInAProgram(f"{place}: a program cannot use asyncio.{name}; {ADVICE.get(name, CALL)}")


def place_of(program: Any) -> str:
    """The line of the user's code at which a coroutine waits."""
    found = ""
    while (frame := getattr(program, "cr_frame", None)) is not None:
        if not foreign(frame.f_code.co_filename):
            found = _line(frame)
        program = program.cr_await
    return found or "the program"


def _refusal(attribute: str) -> NotInAProgram:
    name, frame = attribute, sys._getframe(2)
    while _is_asyncio(frame) and frame.f_back is not None:
        name = frame.f_code.co_qualname.partition(".")[0]
        frame = frame.f_back
    while foreign(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return refusal(name, _line(frame))


def _is_asyncio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "asyncio"


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@dataclass(frozen=True)
class ReplayStep:
    """A phase that began, ended, failed, or was found in the journal."""

    state: Literal["begun", "done", "failed", "replayed"]
    key: str
    phase: Phase


class Replay:
    """Runs a program during one driver's lifetime: performs phases and writes the journal."""

    def __init__(
        self,
        world: World,
        performer: Performer,
        journal: Journal,
        job: JobContext,
        tell: Callable[[ReplayStep], None] = lambda _: None,
    ) -> None:
        self._world = world
        self._candidates = Candidates(performer, job.ledger, Choices(journal))
        self._journal = journal
        self._job = job
        self._tell = tell
        self._failures: dict[str, tuple[Phase, Exception]] = {}

    async def play(self, program: Coroutine[Any, Any, Any], prefix: str = "") -> Any:
        """Drive a coroutine of phases to its end; return its result or raise its exception.

        A QtideError is a failure of the run, not of a phase, so the program cannot catch it.
        """
        value, error, place = None, None, 0
        while True:
            failed_at = f"{prefix}{place}"
            place += 1
            try:
                with without_loop():
                    awaited = program.send(value) if error is None else program.throw(error)
            except StopIteration as end:
                self._caught(failed_at)
                return _awaited(end.value)
            if error is not None:
                self._caught(failed_at)
            value, error = None, None
            try:
                value = await self._perform(_known(awaited, program), f"{prefix}{place}")
            except QtideError:
                program.close()
                raise
            except Exception as failure:
                error = failure

    async def _perform(self, awaited: Classical | Quantum | Together, key: str) -> Any:
        match awaited:
            case Classical() | Quantum():
                return await self._phase(awaited, key)
            case Together(parts):
                parts_with_keys = ((part, f"{key}.{n}") for n, part in enumerate(parts, 1))
                return await self._world.all_of(self._part(*each) for each in parts_with_keys)

    async def _part(self, part: Any, key: str) -> Any:
        match part:
            case Task():
                return (await self._phase(Classical((part,)), key))[0]
            case Classical() | Quantum():
                return await self._phase(part, key)
            case _:
                return await self.play(part, f"{key}.")

    async def _phase(self, phase: Phase, key: str) -> Any:
        record = self._journal.find(key)
        if record is not None:
            return self._replayed(phase, key, record)
        self._tell(ReplayStep("begun", key, phase))
        try:
            result = await self._candidates.perform(phase, key)
            self._journal.append(JournalRecord(key, asked(phase), self._pack(result, phase)))
        except Exception as error:
            self._failures[key] = (phase, error)
            self._tell(ReplayStep("failed", key, phase))
            raise
        self._tell(ReplayStep("done", key, phase))
        return result

    def _replayed(self, phase: Phase, key: str, record: JournalRecord) -> Any:
        if record.asked != asked(phase):
            raise QtideError(
                f"the program no longer fits its journal: phase {key} is «{record.asked}» in the "
                f"journal, but the program asks for «{asked(phase)}»; undo the change, or start "
                "a new run"
            )
        outcome = self._job.values.unpack(Packed.from_json(record.outcome))
        self._tell(ReplayStep("replayed", key, phase))
        if record.failed:
            raise outcome
        return outcome

    def _caught(self, place: str) -> None:
        """Write failures that the program caught to the journal.

        Uncaught failures are not written, so that the phase runs again on resume.
        """
        for key, (phase, error) in list(self._failures.items()):
            if key == place or key.startswith(f"{place}."):
                outcome = self._pack(error, phase)
                self._journal.append(JournalRecord(key, asked(phase), outcome, failed=True))
                del self._failures[key]

    def _pack(self, value: Any, phase: Phase) -> dict[str, Any]:
        try:
            return self._job.values.pack(value).as_json()
        except Unstorable as error:
            raise QtideError(
                f"the result of the phase «{phase.label}» cannot be stored: {error}; "
                "return plain data or arrays"
            ) from None


def _known(awaited: Any, program: Coroutine[Any, Any, Any]) -> Classical | Quantum | Together:
    """Check that a program may await what it awaits."""
    if isinstance(awaited, Classical | Quantum | Together):
        return awaited
    place = place_of(program)
    if awaited is None:  # what asyncio.sleep(0) yields
        raise refusal("sleep", place)
    raise QtideError(
        f"{place}: the program awaits {awaited!r}; a program may await only task(), classical(), "
        "quantum(), together() and coroutines of these"
    )


def _awaited(value: Any) -> Any:
    """Check that a return value is not an unawaited phase."""
    if isinstance(value, Unawaited):
        value.use()
        raise QtideError(f"the program returns {value} itself: write `return await {value}`")
    return value


def asked(phase: Phase) -> str:
    """What a phase asks for; on replay, the program must ask for the same."""
    return f"{phase.kind} {phase.label}"
