"""Phases that others run: the answers that have come, and what is asked for next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qtide.export.cwl.parcel import Answer
from qtide.programs.phase import Classical, Phase, Task
from qtide.world.world import World


class Answered:
    """In place of a strategy: gives the answers there are, and notes the phases without one."""

    def __init__(self, world: World, answers: Iterable[Answer]) -> None:
        self._world = world
        self._answers: dict[str, dict[int, Answer]] = {}
        for answer in answers:
            self._answers.setdefault(answer.key, {})[answer.place] = answer
        self.asked: dict[str, Phase] = {}
        """The phases that the program waits for, by their keys."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """The result of a phase; if there is none yet, wait, for longer than anybody does."""
        known = self._answers.get(key, {})
        if len(known) < len(parts(phase)):
            self.asked[key] = phase
            await self._world.future()
        results = [_result(known[place]) for place in sorted(known)]
        return results if isinstance(phase, Classical) else results[0]

    def of(self, keys: Iterable[str]) -> list[Answer]:
        """The answers to these phases."""
        return [each for key in keys for each in self._answers.get(key, {}).values()]

    @property
    def keys(self) -> list[str]:
        """The phases that have answers."""
        return list(self._answers)


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
