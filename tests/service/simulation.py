"""A whole service in virtual time, with everything that may happen to it, and the invariants."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from qtide.backends.payloads.payload import Burst, Encoded, decode_answer, encode
from qtide.core.errors import PhaseError, QtideError
from qtide.core.processes import Header
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import DAY, Configuration
from qtide.service.intake import Submission
from qtide.service.policies.policy import ShareOwner
from qtide.service.queries import usage
from qtide.service.records import SITE
from qtide.service.service import Service
from qtide.service.store import in_memory
from qtide.service.task import Caller, ServiceTask
from qtide.service.virtual_service import (
    Fate,
    SimulatedDevice,
    SimulatedOccupation,
    SimulatedStore,
    SimulatedWorker,
)

OPERATOR = Caller("operator", operator=True)
ROUNDING = 1e-9
"""Seconds by which sums of floats may be wrong, where tasks divide the time between them."""
WATCHED = """
CREATE TABLE endings (id TEXT);
CREATE TRIGGER ended AFTER UPDATE ON tasks WHEN new.ended IS NOT old.ended
BEGIN INSERT INTO endings VALUES (new.id); END;
"""


class StaleWorker(SimulatedWorker):
    """Answers every earlier attempt once more, wrongly, before it starts a new one."""

    async def perform_together(self, orders: list[tuple[Header, bytes]]) -> None:
        for header, _ in orders:
            task, _, attempt = header["ticket"].partition(":")
            for earlier in range(1, int(attempt)):
                words = {"ticket": f"{task}:{earlier}", "format": "value", "seconds": 99.0}
                self.say(words, b'"of an earlier attempt"')
        await super().perform_together(orders)


class WatchedDevice(SimulatedDevice):
    """Checks the store whenever a task starts."""

    store: SimulatedStore

    def new_worker(self) -> SimulatedWorker:
        return StaleWorker(self)

    def occupy(self, ticket: str, alone: float) -> SimulatedOccupation:
        task = ticket.partition(":")[0]
        words = "SELECT state FROM tasks WHERE id = ?"
        row = self.store.read(lambda db: db.execute(words, (task,)).fetchone())
        assert row["state"] in ("queued", "running"), "started before it was accepted, or after"
        return super().occupy(ticket, alone)


@dataclass
class Site:
    """A service, its store and its device; the service may die, the others remain."""

    world: VirtualWorld
    setup: dict[str, Any]
    fates: list[Fate] = field(default_factory=lambda: [Fate()])
    commit_s: float = 0.0004
    quotas: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        rows = in_memory()
        rows.executescript(WATCHED)
        self.store = SimulatedStore(self.world, self.commit_s, rows)
        self.device = WatchedDevice(self.world, self._fate)
        self.device.store = self.store
        self.accepted: list[ServiceTask] = []
        self.heard: list[ServiceTask] = []
        self._chance = random.Random(self.seed)
        self._begun = 0
        self._number = 0
        self.kills = 0
        self.restarts = 0

    def _fate(self, _: Header) -> Fate:
        self._begun += 1
        return self.fates[(self._begun - 1) % len(self.fates)]

    async def open(self) -> None:
        """Start a service on the store as it is."""
        configuration = Configuration.model_validate(
            {
                "devices": {"dev": {"kind": "burst"} | self.setup},
                "quotas": self.quotas,
                "fair": {"half_life": 1e12},  # so that usage can be added up
            }
        )
        self.service = Service(configuration, self.world, self.store, self.device, self._chance)
        await self.service.open()

    async def kill(self) -> None:
        """Let the service die at once, with its workers, and start another."""
        self.kills += 1
        self.store = self.device.store = self.store.reopened()
        await self.service.abandon()  # its last writes go nowhere
        if self.device.worker is not None:
            self.device.worker.die()
        await self.world.sleep(0.0)
        await self.open()

    async def restart(self) -> None:
        """Stop the service as systemd would, and start another."""
        self.restarts += 1
        self.kills += self.store.broken  # its last words cannot be written
        self.service.let_go()
        await self.service.close()
        self.store = self.device.store = self.store.reopened()
        await self.open()

    async def submit(self, caller: Caller, seconds: float, **more: Any) -> None:
        """Submit a burst with its own answer, and wait for it."""
        service = self.service
        self._number += 1
        payload = encode(Burst(seconds, self._number))
        submission = Submission("dev", payload, name=str(self._number), **more)
        try:
            task = await service.submit(caller, submission)
        except (QtideError, PhaseError):
            return
        self.accepted.append(task)
        assert self.row(task.id) is not None, "accepted before it was on disk"
        await service.wait(task, 1e9)
        if task.over:
            assert self.row(task.id)["state"] == task.state, "told before it was on disk"
            self.heard.append(task)

    async def hold(
        self, caller: Caller, seconds: float, idle: float, tasks: list[float], gap: float
    ) -> None:
        """Open a session, and run tasks in it, each some time after the last one."""
        service = self.service
        payload = encode(Burst(seconds, None))
        try:
            session = await service.submit(caller, Submission("dev", payload, idle=idle))
        except (QtideError, PhaseError):
            return
        self.accepted.append(session)
        while session.state == "queued" and self.service is service:
            await self.world.sleep(0.25)  # a service that stops would not wait
        for each in tasks:
            await self.submit(caller, each, session=session.id)
            await self.world.sleep(gap)
        if self.service is service:
            await service.cancel(caller, session.id)

    async def cancel(self, number: int) -> None:
        """Cancel one of the accepted tasks."""
        if self.accepted:
            task = self.accepted[number % len(self.accepted)]
            await self.service.cancel(task.caller, task.id)

    async def look(self) -> None:
        """All callers at the same moment get the same information."""
        standings = [
            (task, self.service.standing(task)) for task in await self.tasks() if not task.over
        ]
        found = [(each.outlook, task) for task, each in standings if each and each.outlook]
        found.sort(key=lambda pair: pair[0])
        assert [each.position for each, _ in found] == list(range(len(found)))
        starts = [each.start for each, task in found if task.latest is None]
        assert starts == sorted(starts), "a later place starts earlier, without a promise"
        assert all(each.start <= each.end for each, _ in found)

    async def tasks(self) -> list[ServiceTask]:
        found = await self.service.tasks(OPERATOR, limit=10_000, everybody=True)
        return [task for _, task in found]

    async def settle(self) -> None:
        """Wait until every task is over."""
        self.device.broken = self.store.broken = False
        await self.service.operations.resume(OPERATOR, "dev")
        live = "SELECT count(*) FROM tasks WHERE ended IS NULL"
        while self.store.read(lambda db: db.execute(live).fetchone()[0]):
            await self.world.sleep(10.0)
        await self.world.sleep(10.0)
        await self.service.close()

    def row(self, id: str) -> Any:  # noqa: A002 - the column's name
        words = "SELECT * FROM tasks WHERE id = ?"
        return self.store.read(lambda db: db.execute(words, (id,)).fetchone())

    def rows(self, words: str = "SELECT * FROM tasks") -> list[Any]:
        rows: list[Any] = self.store.read(lambda db: db.execute(words).fetchall())
        return rows

    def check(self) -> None:
        """The invariants, once everything is over."""
        rows = self.rows()
        known = {row["id"] for row in rows}
        assert {task.id for task in self.accepted} <= known, "an accepted task was lost"
        assert {row["state"] for row in rows} <= {"done", "failed", "cancelled"}
        endings = Counter(row["id"] for row in self.rows("SELECT id FROM endings"))
        assert set(endings.values()) <= {1}, "a task ended twice"
        assert _one_after_the_other(self.device.occupations), "two tasks were on the device at once"
        for row in rows:
            self._check_row(row)
        self._check_accounts(rows)
        self._check_books(rows)

    def _check_row(self, row: Any) -> None:
        attempts = [
            each for each in self.device.occupations if each.ticket.startswith(f"{row['id']}:")
        ]
        retries = self.setup.get("retries", 2)
        whole = [each for each in attempts if each.said != "share"]  # it did not give way
        assert len(whole) <= retries + 1 + self.kills + self.restarts, "a task ran too often"
        if row["idle"] is not None:
            held = (row["ended"] - row["started"]) if row["started"] else 0.0
            assert not attempts and row["used"] <= held + 1e-6, "a session paid for too much"
            return
        if row["state"] == "done":
            answer = decode_answer(Encoded(row["answer_format"], row["answer"]))
            assert str(answer) == row["name"], "an answer of another attempt or task"
        busy = [each.seconds for each in attempts if each.said != "fault"]
        if self.kills or self.restarts:  # what they cut off is the site's
            assert row["used"] <= sum(busy) + 1e-3
        else:
            assert abs(row["used"] - sum(busy)) < 1e-3, "charged for a time other than it took"

    def _check_books(self, rows: list[Any]) -> None:
        """Owners and site together pay for each second that the device was busy, and once."""
        booked = self.rows("SELECT * FROM occupations")
        busy = sum(each.seconds for each in self.device.occupations)
        busy += sum(row["used"] for row in rows if row["idle"] is not None)  # held in between
        assert abs(sum(row["seconds"] for row in booked) - busy) < 1e-3
        owners: defaultdict[str, float] = defaultdict(float)
        for row in booked:
            owners[row["task"]] += row["seconds"] if row["user"] != SITE.user else 0.0
        assert all(abs(owners[row["id"]] - row["used"]) < 1e-3 for row in rows)
        for by in (["user"], ["device", "job"]):
            used = self.store.read(usage(by, None, None, None, self.world.now()))
            assert abs(sum(row["qpu_seconds"] for row in used) - busy) < 1e-3

    def _check_accounts(self, rows: list[Any]) -> None:
        service = self.service
        assert service.at_rest, "something is still held for a task that is over"
        now, users, owners = self.world.now(), Counter[str](), Counter[ShareOwner]()
        for row in rows:
            users[row["user"]] += row["used"]
            owners[ShareOwner.of(Caller(row["user"], row["account"]))] += row["used"]
        for owner, seconds in owners.items():
            assert abs(service.shares.used(owner, now) - seconds) < 1e-3
        for user, seconds in users.items():
            counted = service.quotas_left(Caller(user))[0]["qpu_seconds"]
            assert now > DAY or abs(counted - seconds) < 1e-6


def _one_after_the_other(occupations: Iterable[SimulatedOccupation]) -> bool:
    free = 0.0
    for each in occupations:
        if each.began < free - ROUNDING or each.ended is None:
            return False
        free = each.ended
    return True
