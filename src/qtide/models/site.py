"""A site as a file: all that the twin has to know about a cluster, its QPUs and its other users."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from qtide.errors import UsageError
from qtide.models.generator import Generator
from qtide.models.mix import Mix

SUFFIX = ".toml"
STRICT = {"extra": "forbid"}

Seconds = Annotated[float, Ge(0)]


@dataclass(frozen=True)
class Loss:
    """At `at` seconds the node dies; it is back after `back` seconds, or never.

    With `answers`, what runs on it goes on all the same and answers too late, as a node does
    that was only cut off.
    """

    at: float
    node: str
    back: float | None = None
    answers: bool = False

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Delays:
    """What the cluster itself takes its time for, in seconds."""

    grant: Seconds = 0.0
    """until a request is looked at; no node is held meanwhile"""
    start: Seconds = 0.0
    """until a node that was granted can work"""
    release: Seconds = 0.0
    """until a node that was given back is free"""
    withdraw: Seconds = 0.0
    """until a request that was withdrawn has left the queue"""
    reconfigure: Seconds | None = None
    """until a request of a malleable job to grow is looked at; as `grant` if it is not given"""
    cold: Seconds = 0.0
    """by which the first start of a job on a node takes longer"""
    turnaround: Seconds = 0.0
    """until a node that was given back can be granted again; nobody holds it meanwhile"""
    step: Seconds = 0.0
    """between two phases of a program, for its driver; only the twin's own jobs take it"""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Window:
    """A calibration or a maintenance: no payload starts from `at` on for `lasts` seconds."""

    at: Seconds
    lasts: Annotated[float, Gt(0)]
    every: Annotated[float, Gt(0)] | None = None
    """After how many seconds it comes again; never, if it is not given."""

    __pydantic_config__ = STRICT

    def end(self, now: float) -> float:
        """When the window in which `now` lies is over; `now` itself if there is none."""
        if now < self.at:
            return now
        times = floor((now - self.at) / self.every) if self.every else 0
        return max(now, self.at + times * (self.every or 0.0) + self.lasts)


@dataclass(frozen=True)
class QpuModel:
    """What a QPU takes beside the time of its payloads."""

    number: Annotated[int, Ge(1)] = 1
    """How many of them there are."""
    offload: Seconds = 0.0
    """Seconds per payload until it is in the device's queue, and its answer back."""
    wait: Seconds = 0.0
    """Seconds per payload that others' payloads are before it."""
    spread: Literal["fixed", "exponential", "lognormal"] = "fixed"
    """How the time of a payload varies around what its profile says,"""
    variation: Seconds = 0.2
    """and the coefficient of variation of the lognormal one."""
    order: Literal["jobs", "arrival"] = "jobs"
    """Whether payloads of earlier jobs go first, or those that came first."""
    windows: tuple[Window, ...] = ()

    __pydantic_config__ = STRICT

    def back(self, now: float) -> float:
        """When the device can start a payload: now, or after its windows."""
        later = max((window.end(now) for window in self.windows), default=now)
        return later if later == now else self.back(later)


@dataclass(frozen=True)
class Power:
    """Watts."""

    node_idle: Seconds = 150.0
    node_busy: Seconds = 500.0
    qpu: Seconds = 25_000.0

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Background:
    """The jobs of other users: a trace in the Standard Workload Format, or generated ones."""

    trace: str | None = None
    generate: Generator | None = None

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class SiteModel:
    """A cluster with QPUs. Without a scheduler or background jobs, it has no queue but its own."""

    nodes: Annotated[int, Ge(1)] = 3
    scheduler: Literal["fifo", "easy"] = "fifo"
    limit: Annotated[float, Gt(0)] = 3600.0
    """The time limit of a hybrid job's requests, by which the scheduler plans."""
    gathers: bool = False
    """Whether a job that grows holds the nodes that come first while it waits for the others."""
    keeps_agents: bool = False
    """Whether a node that was given back need not start anew."""
    delays: Delays = Delays()
    losses: tuple[Loss, ...] = ()
    qpu: QpuModel = QpuModel()
    power: Power = Power()
    background: Background = field(default_factory=Background)
    hybrid: Mix = Mix()  # noqa: RUF009 - frozen

    __pydantic_config__ = STRICT

    @property
    def is_batch(self) -> bool:
        """Whether other users' jobs, or backfilling, need the batch system's own queue."""
        others = self.background.trace is not None or self.background.generate is not None
        return others or self.scheduler == "easy"


def read_site(file: Path) -> SiteModel:
    """The site that a file describes."""
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(
            f"the site file {file} cannot be read ({error.strerror}); name a TOML file"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the site file {file} is not valid TOML: {error}") from None
    return site_of(table, file)


def site_of(table: dict[str, Any], file: Path) -> SiteModel:
    """The site that a table describes; the path of a trace counts from the file's own."""
    from pydantic import TypeAdapter, ValidationError  # heavy

    try:
        model: SiteModel = TypeAdapter(SiteModel).validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{file}: {place}: {first['msg'].lower()}; see docs/twin.md") from None
    if model.background.trace is not None:
        trace = str(file.parent / model.background.trace)
        object.__setattr__(model, "background", Background(trace))
    return model
