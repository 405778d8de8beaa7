"""Random competing load in virtual time, in which some tasks are promised their start."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from qtide.backends.payloads.payload import Burst, Encoded, encode, encode_answer
from qtide.core.errors import PhaseError, QtideError
from qtide.core.processes import Header
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import Configuration
from qtide.service.intake import Submission
from qtide.service.service import Service
from qtide.service.task import Caller, ServiceTask
from qtide.service.virtual_service import SimulatedDevice, SimulatedStore, SimulatedWorker

TOO_LATE = 1e-6
"""Seconds after the promised moment from which on a start is late."""


class UntimedWorker(SimulatedWorker):
    """Takes circuits whose time only their size suggests, and differs by a third."""

    async def perform(self, header: Header, body: bytes) -> None:
        """A check takes no time; a circuit takes what it says, which the service cannot read."""
        if "check" in header:
            words = {"ticket": header["ticket"], "format": header["format"], "size": 1}
            self.say(words, body)
        elif header["format"] == "burst":
            await super().perform(header, body)
        else:
            await super().perform(header | {"seconds": float(body.split()[0])}, body)

    def answer_to(self, body: bytes) -> Encoded:
        """A circuit's answer is its time."""
        return encode_answer(None)


class RivalledDevice(SimulatedDevice):
    """A device without a timing profile."""

    def new_worker(self) -> SimulatedWorker:
        return UntimedWorker(self)


@dataclass
class Rivals:
    """Users who submit at random for a while; whoever was promised a start is watched."""

    seed: int
    setup: dict[str, Any]
    users: int = 6
    lasts: float = 600.0
    load: float = 0.9
    untimed: bool = False
    commit_s: float = 0.005
    promised: list[ServiceTask] = field(default_factory=list)
    others: list[ServiceTask] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self.world = VirtualWorld(self.seed)
        self.chance = random.Random(self.seed)
        self.store = SimulatedStore(self.world, self.commit_s)
        self.device = RivalledDevice(self.world)

    def run(self) -> Rivals:
        """Let all of it happen."""
        self.world.run(self._main(), until=1e6)
        return self

    @property
    def broken(self) -> list[ServiceTask]:
        """The tasks that started later than promised, or never."""
        return [
            task
            for task in self.promised
            if task.state != "done"
            or task.started is None
            or task.started > (task.latest or 0.0) + TOO_LATE
        ]

    async def _main(self) -> None:
        words = {"devices": {"dev": {"kind": "burst"} | self.setup}}
        configuration = Configuration.model_validate(words)
        chance = random.Random(self.seed)
        self.service = Service(configuration, self.world, self.store, self.device, chance)
        await self.service.open()
        await self.world.sleep(5.0)
        await self.world.all_of([self._user(f"user {n}") for n in range(self.users)])
        tasks = [*self.promised, *self.others]
        while not all(task.over for task in tasks):
            await self.world.sleep(1.0)
        await self.service.close()

    async def _user(self, name: str) -> None:
        caller = Caller(name, self.chance.choice(("", "physics")), self.chance.choice((None, 1, 2)))
        end = self.world.now() + self.lasts
        while self.world.now() < end:
            seconds = self.chance.choice((0.001, 0.01, 0.05, 0.2, 1.0))
            await self.world.sleep(self.chance.expovariate(self.load / self.users / seconds))
            wait = self.chance.choice((None, None, 0.03, 0.1, 0.5, 2.0, 10.0, 60.0))
            await self._submit(caller, seconds, wait)

    async def _submit(self, caller: Caller, seconds: float, wait: float | None) -> None:
        submission = Submission(
            "dev",
            self._payload(seconds),
            max_wait=wait,
            priority=self.chance.randint(-5, 5),
        )
        try:
            task = await self.service.submit(caller, submission)
        except (QtideError, PhaseError):
            self.refused += 1
            return
        (self.others if wait is None else self.promised).append(task)

    def _payload(self, seconds: float) -> Encoded:
        if not self.untimed:
            return encode(Burst(seconds))
        taken = seconds * self.chance.uniform(0.75, 1.25)
        return Encoded("iqm", f"{taken:.6f} ".encode().ljust(int(50 + 2000 * seconds)))
