"""A package of somebody else's, with one plug-in of each kind: what a site would ship."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from qtide import classical, program, quantum, task
from qtide.backends.clusters.kind import Setting
from qtide.backends.clusters.simulated import Simulated, SimulatedCluster
from qtide.backends.devices.device import Device
from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.options import Option
from qtide.core.world.world import World
from qtide.runs.spec import Spec
from qtide.runs.start import Advised
from qtide.strategies.static import Static


@dataclass(frozen=True)
class ToyOptions:
    """What its user may choose."""

    colour: Annotated[str, Option("The colour of the nodes.")] = "red"


class ToyKind(Simulated):
    """A cluster in virtual time that always has two nodes."""

    summary = "two toy nodes"
    Options = ToyOptions

    async def open(self, world: World, setting: Setting) -> SimulatedCluster:
        """Its nodes are named after their colour."""
        cluster = SimulatedCluster(world, 2)
        colour = setting.options(ToyOptions).colour
        cluster._free.extend(f"{colour}{n}" for n in (1, 2))
        for _ in range(2):
            cluster._free.popleft()
        return cluster


class ToyStrategy(Static):
    """What static does, under another name."""

    summary = "static, as a toy"


@dataclass(frozen=True)
class Riddle:
    """A payload of a format of its own."""

    text: str


def playful(spec: Spec, runs: Path) -> Advised:
    """An adviser that has made up its mind."""
    return Advised("toy", "everything else is work")


class ToyDevice(Device):
    """Answers riddles."""

    name = "toy"

    def __init__(self, answer: str = "42") -> None:
        self._answer = answer

    def properties(self) -> dict[str, Any]:
        """Its own format."""
        return {"formats": ["toy", "burst"], "most": {"shots": 1000}}

    def _check(self, payload: Any) -> None:
        if not isinstance(payload, Riddle):
            raise PayloadRefused("the toy takes riddles only")
        if payload.text[-1] != "?":  # it is careless: an empty one makes it fail
            raise PayloadRefused("a riddle ends with a question mark")

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        return [self._answer] * shots


def recognises(value: object) -> bool:
    """Riddles."""
    return isinstance(value, Riddle)


def pack(riddle: Riddle) -> bytes:
    """Its text."""
    return riddle.text.encode()


def unpack(data: bytes) -> Riddle:
    """The riddle again."""
    return Riddle(data.decode())


def newest_first(shares: object) -> Any:
    """A policy of the service: whoever came last is served first."""
    from qtide.service.policies.policy import Ordered

    return Ordered(lambda task: (-task.submitted, 0.0, 0.0, task.id))


def toy_api(service: Any, access: Any) -> Any:
    """An API of the service: one route."""
    from fastapi import APIRouter

    from qtide.service.apis.api import Api

    router = APIRouter(prefix="/toy")

    @router.get("/hello")
    async def hello() -> dict[str, list[str]]:
        """Greet with the names of the devices."""
        return {"hello": sorted(service.devices)}

    return Api("/toy", router, public=["/toy/hello"])


def double(number: int) -> int:
    """A task."""
    return 2 * number


@program
async def doubled(number: int = 1) -> list[int]:
    """An application: twice a number, and twice that."""
    (first,) = await classical(task(double, number))
    from qtide.backends.payloads.payload import Burst

    await quantum(Burst(1.0))
    return [first, await task(double, first)]
