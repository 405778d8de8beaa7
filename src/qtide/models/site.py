"""A site as a file: all that the twin has to know about a cluster, its QPUs and its other users."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from qtide.errors import UsageError
from qtide.models.checks import mistakes
from qtide.models.faults import Failures, Loss
from qtide.models.generator import Generator
from qtide.models.mix import Mix
from qtide.models.qpu import QpuModel, ServiceModel, Window
from qtide.models.strict import STRICT, Seconds

__all__ = [
    "SUFFIX",
    "Background",
    "Delays",
    "Failures",
    "Loss",
    "Partition",
    "Power",
    "QpuModel",
    "ServiceModel",
    "SiteModel",
    "Window",
    "read_site",
    "site_of",
]

SUFFIX = ".toml"

Scheduler = Literal["fifo", "easy"]


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
class Partition:
    """Nodes with a queue and other users of their own; all partitions share the QPUs."""

    name: str
    nodes: Annotated[int, Ge(1)]
    scheduler: Scheduler | None = None
    """As the site's, if it is not given."""
    limit: Annotated[float, Gt(0)] | None = None
    background: Background = field(default_factory=Background)
    hybrid: Annotated[float, Ge(0)] = 1.0
    """How many of the hybrid jobs come here, in proportion to the other partitions."""
    losses: tuple[Loss, ...] = ()

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class SiteModel:
    """A cluster with QPUs. Without a scheduler or background jobs, it has no queue but its own."""

    nodes: Annotated[int, Ge(1)] = 3
    scheduler: Scheduler = "fifo"
    limit: Annotated[float, Gt(0)] = 3600.0
    """The time limit of a hybrid job's requests, by which the scheduler plans."""
    keeps_agents: bool = False
    """Whether a node that was given back need not start anew."""
    delays: Delays = Delays()
    losses: tuple[Loss, ...] = ()
    failures: Failures | None = None
    partitions: tuple[Partition, ...] = ()
    """If there are any, they have the nodes and the background."""
    qpu: QpuModel = QpuModel()  # noqa: RUF009 - frozen
    service: ServiceModel | None = None
    """What shares the QPUs; without, each has a queue of its own."""
    power: Power = Power()
    background: Background = field(default_factory=Background)
    hybrid: Mix = Mix()  # noqa: RUF009 - frozen
    strategies: Mapping[str, Mapping[str, str | float | bool]] = field(default_factory=dict)
    """Options of strategies by their names, as of `qtide run`: malleable's expand_timeout."""

    __pydantic_config__ = STRICT

    def parts(self) -> tuple[SiteModel, ...]:
        """Each partition as a site of its own; the site itself if it has none."""
        return tuple(self._part(each) for each in self.partitions) or (self,)

    @property
    def all_nodes(self) -> int:
        """The nodes of all partitions."""
        return sum(part.nodes for part in self.parts())

    def part(self, name: str) -> SiteModel:
        """The partition of that name; the first one, if none is named."""
        names = [each.name for each in self.partitions]
        if not name:
            return self.parts()[0]
        if name not in names:
            known = ", ".join(names) or "none"
            raise UsageError(f"the site has no partition {name!r}; it has: {known}")
        return self.parts()[names.index(name)]

    def _part(self, part: Partition) -> SiteModel:
        return replace(
            self,
            nodes=part.nodes,
            scheduler=part.scheduler or self.scheduler,
            limit=part.limit or self.limit,
            background=part.background,
            losses=part.losses,
            partitions=(),
        )

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
        raise UsageError(f"{file}: {place}: {_said(first)}; see docs/twin.md") from None
    for mistake in mistakes(model, table):
        raise UsageError(f"{file}: {mistake}")
    parts = [replace(p, background=_beside(file, p.background)) for p in model.partitions]
    return replace(model, background=_beside(file, model.background), partitions=tuple(parts))


def _said(error: Mapping[str, Any]) -> str:
    """What pydantic found, in our words where its own are not clear."""
    if error["type"] == "unexpected_keyword_argument":
        return "there is no such key"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _beside(file: Path, background: Background) -> Background:
    """A trace is found beside the file that names it."""
    if background.trace is None:
        return background
    return replace(background, trace=str(file.parent / background.trace))
