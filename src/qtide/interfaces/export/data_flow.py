"""The data flow of a run: which earlier results and which arguments each phase received.

A run does not record its data flow. So this module replays the program from its journal and tracks
values by identity. It cannot track values that the program computed itself: a phase with only such
inputs is assumed to use the results the program received just before, and the crate says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qtide.backends.client.target import Target
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Packed, Values
from qtide.core.world.virtual import VirtualWorld
from qtide.interfaces.export.advance import MOMENT
from qtide.programs.journal import TARGET, Journal
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.replay import CandidateChoice, Replay, ReplayStep
from qtide.runs.folder import Call, RunFolder

DEPTH = 4
"""Maximum depth to which containers are searched for values."""
MOST_VALUES = 100_000
"""Maximum number of values to search."""


@dataclass
class PhaseInputs:
    """The inputs of a phase."""

    phases: list[str] = field(default_factory=list)
    """Keys of the phases whose results it received."""
    arguments: list[str] = field(default_factory=list)
    """Names of the program's arguments it received."""
    computed: bool = False
    """Whether the program computed the input itself after receiving these results."""


def data_flow(run: RunFolder) -> dict[str, PhaseInputs]:
    """Return the inputs of each phase by key; empty if the program cannot be replayed."""
    if run.spec.session or not run.journal.is_file():
        return {}
    try:
        with (
            TemporaryDirectory() as folder,
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),  # the program may print again
            redirect_stderr(nowhere),
        ):
            return _replayed(run, Path(folder))
    except Exception:  # a user's program may raise anything, or be gone
        return {}


def _replayed(run: RunFolder, folder: Path) -> dict[str, PhaseInputs]:
    call = Call.read(run.path, run.values, run.spec)
    world = VirtualWorld()
    flow = FlowTracker(run.values.folder, call)
    job = JobContext(run.name, Ledger(run.name, world.now), flow, run.spec.seed)
    draft = shutil.copyfile(run.journal, folder / "journal")
    with closing(Journal(draft, call.program.name)) as journal:
        target = journal.find(TARGET)
        playing = call.prepare(
            seed=run.spec.seed,
            folder=folder,
            target=Target(**target.outcome) if target else None,
        )
        replay = Replay(world, NoPerformer(world), journal, job, flow.add)

        async def until_it_waits() -> None:
            work = world.start(replay.play(playing))
            await world.first_of([work, world.start(world.sleep(MOMENT))])
            await world.cancel([work])

        with closing(playing):
            world.run(until_it_waits())
    return flow.inputs


class NoPerformer:
    """Performs no phase: phases missing from the journal wait until the replay ends."""

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world

    async def perform(self, phase: Phase, key: str) -> Any:
        """Wait forever."""
        await self._world.future()

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Choose the QPU; its phase then waits as well."""
        return CandidateChoice("qpu", "")


class FlowTracker(Values):
    """Tracks values: sees each result from the journal and each phase the program requests."""

    def __init__(self, folder: Path, call: Call) -> None:
        super().__init__(folder)
        self.inputs: dict[str, PhaseInputs] = {}
        self._result: Any = None
        self._kept: list[Any] = []
        """All results, kept alive so that no other value reuses their identities."""
        self._phases: dict[int, str] = {}
        self._arguments: dict[int, str] = {}
        bound = call.program.signature.bind_partial(*call.args, **call.kwargs)
        bound.apply_defaults()
        for name, argument in bound.arguments.items():
            self._arguments |= dict.fromkeys(_identities(argument), name)

    def unpack(self, packed: Packed) -> Any:
        """Return a result from the journal; `add` is called next, with its phase."""
        self._result = super().unpack(packed)
        return self._result

    def add(self, step: ReplayStep) -> None:
        """Record the inputs of a phase, then its result."""
        if step.state != "replayed":
            return
        given = list(_identities(_input_of(step.phase)))
        phases = list(dict.fromkeys(self._phases[each] for each in given if each in self._phases))
        names = [self._arguments[each] for each in given if each in self._arguments]
        computed = not phases and not names
        before = _before(step.key, list(self.inputs)) if computed else []
        self.inputs[step.key] = PhaseInputs(
            phases or before, list(dict.fromkeys(names)), computed=bool(before)
        )
        self._kept.append(self._result)
        for each in _identities(self._result):
            self._phases.setdefault(each, step.key)


def _input_of(phase: Phase) -> Any:
    if isinstance(phase, Classical):
        return [(task.args, dict(task.kwargs)) for task in phase.tasks]
    return [phase.payload]


def _before(key: str, earlier: list[str]) -> list[str]:
    """Return the phases of the last await before `key`, in its branch or an enclosing one."""
    places = key.split(".")
    while places:
        if len(places) % 2 == 0:  # a part of together(): look before the whole of it
            places.pop()
        *branch, place = places
        for number in range(int(place) - 1, 0, -1):
            awaited = ".".join([*branch, str(number)])
            found = [each for each in earlier if each == awaited or each.startswith(f"{awaited}.")]
            if found:
                return found
        places = branch
    return []


def _identities(value: Any) -> Iterator[int]:
    return islice((id(each) for each in _values(value, DEPTH)), MOST_VALUES)


def _values(value: Any, depth: int) -> Iterator[Any]:
    """Yield a value and its contents, except objects that Python shares."""
    shared = value is None or value is ... or isinstance(value, bool | type) or not _own(value)
    if not shared:
        yield value
    if depth and isinstance(value, list | tuple | set | frozenset | dict):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _values(each, depth - 1)


def _own(value: Any) -> bool:
    """Whether equal values are distinct objects; Python shares small numbers and short texts."""
    if isinstance(value, int):
        return abs(value) > 256
    return not (isinstance(value, str | bytes | tuple | frozenset) and len(value) < 2)
