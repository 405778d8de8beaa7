"""Phases that others run: the answers that have come, and what is asked for next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from qtide.export.cwl.parcel import Answer
from qtide.programs.choice import Choice
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.strategies.prospects import Prospects
from qtide.world.world import World


class Answered:
    """In place of a strategy: gives the answers there are, and notes the phases without one."""

    def __init__(
        self, world: World, answers: Iterable[Answer], wait_for_qpu: Callable[[], float]
    ) -> None:
        self._world = world
        self._wait_for_qpu = wait_for_qpu
        self._answers: dict[tuple[str, str], dict[int, Answer]] = {}
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

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> Choice:
        """By the queue of the QPU: how long the task takes is not known to a workflow."""
        return Prospects(self._wait_for_qpu(), 0.0, 0.0, None).choice(phase.patience)

    def unsettled(self, settled: Callable[[str], object]) -> list[Answer]:
        """The answers to phases that are not settled."""
        known = self._answers.items()
        return [each for (key, _), all_of in known if not settled(key) for each in all_of.values()]


def parts(phase: Phase) -> list[Phase]:
    """What a phase consists of, each for a step of its own: its tasks, or its payload."""
    return [_alone(task) for task in phase.tasks] if isinstance(phase, Classical) else [phase]


def _alone(task: Task[Any]) -> Classical:
    return Classical((task,))


def _result(answer: Answer) -> Any:
    value = answer.value()
    if answer.failed:
        raise value
    return value
