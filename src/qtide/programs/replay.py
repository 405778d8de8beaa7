"""Replay: drives a program through its phases, taking results from the journal if it has them.

Each phase has a key, its place in the program: the third await is "3"; if that is a `together()`,
the second await of its first part is "3.1.2". Keys do not depend on timing, so a replay finds its
phases in whatever order they ended.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from qtide.errors import QtideError
from qtide.jobs.job import Job
from qtide.jobs.values import Packed, Unstorable
from qtide.programs.asked import Asked
from qtide.programs.candidates import Candidates, Performer
from qtide.programs.choice import Choices
from qtide.programs.journal import Journal, Record
from qtide.programs.no_loop import place_of, refusal, without_loop
from qtide.programs.phase import Classical, Phase, Quantum, Task, Together
from qtide.world.world import World


@dataclass(frozen=True)
class Step:
    """A phase began, ended, failed, or was found in the journal."""

    state: Literal["begun", "done", "failed", "replayed"]
    key: str
    phase: Phase


class Replay:
    """Runs a program for one lifetime of a driver: performs phases and writes the journal."""

    def __init__(
        self,
        world: World,
        performer: Performer,
        journal: Journal,
        job: Job,
        tell: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self._world = world
        self._candidates = Candidates(performer, job.ledger, Choices(journal))
        self._journal = journal
        self._job = job
        self._tell = tell
        self._failures: dict[str, tuple[Phase, Exception]] = {}

    async def play(self, program: Coroutine[Any, Any, Any], prefix: str = "") -> Any:
        """Drive a coroutine of phases to its end; return its result, or raise its exception.

        A QtideError is a failure of the run, not of a phase: the program cannot catch it.
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
        self._tell(Step("begun", key, phase))
        try:
            result = await self._candidates.perform(phase, key)
            self._journal.append(Record(key, asked(phase), self._pack(result, phase)))
        except Exception as error:
            self._failures[key] = (phase, error)
            self._tell(Step("failed", key, phase))
            raise
        self._tell(Step("done", key, phase))
        return result

    def _replayed(self, phase: Phase, key: str, record: Record) -> Any:
        if record.asked != asked(phase):
            raise QtideError(
                f"the program no longer fits its journal: phase {key} is «{record.asked}» in the "
                f"journal, but the program asks for «{asked(phase)}»; undo the change, or start "
                "a new run"
            )
        outcome = self._job.values.unpack(Packed.from_json(record.outcome))
        self._tell(Step("replayed", key, phase))
        if record.failed:
            raise outcome
        return outcome

    def _caught(self, place: str) -> None:
        """The program caught a failure and went on: write the failure to the journal.

        A failure that is not caught is not written, so that the phase runs again on resume.
        """
        for key, (phase, error) in list(self._failures.items()):
            if key == place or key.startswith(f"{place}."):
                outcome = self._pack(error, phase)
                self._journal.append(Record(key, asked(phase), outcome, failed=True))
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
    """What a program awaits, if it may await that."""
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
    """What a program or a part of it returns, unless it forgot to await that."""
    if isinstance(value, Asked):
        value.use()
        raise QtideError(f"the program returns {value} itself: write `return await {value}`")
    return value


def asked(phase: Phase) -> str:
    """What a phase asks for; on replay, the program has to ask for the same."""
    return f"{phase.kind} {phase.label}"
