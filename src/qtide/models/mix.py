"""The hybrid jobs of a site: how many there are, and what they are like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Gt, Le

from qtide.models.strict import STRICT, Seconds


@dataclass(frozen=True)
class Mix:
    """Jobs of so many rounds: tasks side by side, a payload, then one task alone.

    With a `share`, so many of the background's jobs are hybrid instead, each for as long as it ran
    and on as many nodes; the seconds here only say in which proportion.
    """

    jobs: Annotated[int, Ge(0)] = 100
    days: Annotated[float, Gt(0)] = 1.0
    """In how many days they are submitted, by day and week as the others."""
    share: Annotated[float, Ge(0), Le(1)] = 0.0
    rounds: Annotated[int, Ge(1)] = 4
    nodes: Annotated[int, Ge(1)] = 3
    tasks: tuple[Seconds, ...] = (77.3, 3.5, 0.2)
    table: dict[Annotated[int, Ge(1)], Seconds] = field(default_factory=dict)
    """Instead of tasks: how long one task takes that runs on so many nodes at once."""
    quantum: Seconds = 120.0
    alone: Seconds = 52.0
    variation: Seconds = 0.0
    """The coefficient of variation of each job's durations."""
    users: Annotated[int, Ge(1)] = 50
    """Who submits them; a few users submit most."""
    seed: int = 0

    __pydantic_config__ = STRICT
