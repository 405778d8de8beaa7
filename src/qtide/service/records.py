"""Tasks as rows of the store: every change of them, their contents, and their endings."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qtide.backends.devices.device import Occupation
from qtide.backends.payloads.payload import Encoded
from qtide.core.log import printable
from qtide.core.world.world import World
from qtide.service.store import Action, Database, Result, Store, StoreFailed, ValueTooLarge
from qtide.service.task import (
    AnswerExtent,
    Booking,
    CalibrationSet,
    CalibrationTerms,
    Caller,
    Ending,
    Gone,
    NotFound,
    Route,
    ServiceTask,
    TaskState,
    check_owns,
    owns,
)

log = logging.getLogger(__name__)

COLUMNS = (
    "sequence, id, user, account, job, device, name, format, shots, seed, size, seconds, priority,"
    " max_wait, submitted, state, attempts, started, ended, used, error, calibration,"
    " wanted_calibration, calibrated_within, share, progress, idle, session, route, width,"
    " beside"
)
"""All columns of a task except the large ones."""


PURGE_AT_ONCE = 500


@dataclass(frozen=True)
class Draft:
    """What to store in addition to the task itself."""

    payload: Encoded
    digest: str
    """Digest of the whole request, to tell whether a repeated key means the same task."""
    key: str | None = None
    request: bytes | None = None
    """The request in the format of its API, if the API has to return it."""


def insert(task: ServiceTask, draft: Draft) -> Any:
    """Insert an accepted task."""
    caller = task.caller
    row = {
        "id": task.id,
        "user": caller.user,
        "account": caller.account,
        "job": caller.job,
        "key": draft.key,
        "digest": draft.digest,
        "device": task.device,
        "name": task.name,
        "format": draft.payload.format,
        "shots": task.shots,
        "seed": task.seed,
        "size": task.size,
        "seconds": task.seconds,
        "priority": task.priority,
        "max_wait": task.max_wait,
        "idle": task.idle,
        "session": task.session,
        "route": task.route.to_json() if task.route else None,
        "width": task.width,
        "wanted_calibration": task.terms.id,
        "calibrated_within": task.terms.within,
        "submitted": task.submitted,
        "state": task.state,
        "attempts": 0,
        "used": 0.0,
        "request": draft.request,
        "payload": draft.payload.data,
    }
    names = ", ".join(row)
    marks = ", ".join(f":{name}" for name in row)
    return lambda store: store.execute(f"INSERT INTO tasks ({names}) VALUES ({marks})", row)


def withdraw(task: ServiceTask) -> Any:
    """Delete a task that was not accepted after all, before anybody learnt of it."""
    return lambda store: store.execute("DELETE FROM tasks WHERE id = ?", (task.id,))


def payloads(tasks: Sequence[ServiceTask]) -> Any:
    """Read the payloads of tasks that go to the device, each with its answer so far."""
    find = "SELECT payload, answer_format, answer FROM tasks WHERE id = ?"
    ids = [(task.id,) for task in tasks]

    def action(store: Database) -> list[tuple[bytes, Encoded | None]]:
        rows = [store.execute(find, each).fetchone() for each in ids]
        return [
            (
                row["payload"],
                Encoded(row["answer_format"], row["answer"]) if row["answer"] else None,
            )
            for row in rows
        ]

    return action


def begin(task: ServiceTask) -> Any:
    """Record that a task began on the device; from now on, the attempt counts."""
    words = (
        "UPDATE tasks SET state = 'running', attempts = ?, started = ?, calibration = ?, beside = ?"
        " WHERE id = ? AND attempts <= ? AND state IN ('queued', 'running')"
    )
    found = (task.attempts, task.started, task.calibration, task.beside)
    row = (*found, task.id, task.attempts)
    return lambda store: store.execute(words, row)


def hand_back(tasks: Iterable[ServiceTask]) -> Any:
    """Record that tasks wait again, with their attempts and what they have used so far."""
    words = "UPDATE tasks SET state = 'queued', started = NULL, attempts = ?, used = ? WHERE id = ?"
    rows = [(task.attempts, task.used, task.id) for task in tasks]
    occupied = [row for task in tasks for row in _booked(task)]

    def action(store: Database) -> None:
        store.executemany(words, rows)
        store.executemany(BOOK, occupied)

    return action


def move(task: ServiceTask) -> Any:
    """Record that a waiting task waits for another device."""
    words = "UPDATE tasks SET device = ?, seconds = ? WHERE id = ? AND ended IS NULL"
    return lambda store: store.execute(words, (task.device, task.seconds, task.id))


def pause(task: ServiceTask, so_far: Encoded | None) -> Any:
    """Record that a task gave way, how far it got, and its answer so far."""
    words = (
        "UPDATE tasks SET state = 'queued', started = NULL, attempts = ?, used = ?, share = ?,"
        " progress = ?, answer_format = ?, answer = ? WHERE id = ? AND ended IS NULL"
    )
    progress = (task.attempts, task.used, task.share, task.progress)
    answer = (so_far.format, so_far.data) if so_far else (None, None)
    occupied = _booked(task)

    def action(store: Database) -> None:
        store.execute(words, (*progress, *answer, task.id))
        store.executemany(BOOK, occupied)

    return action


BOOK = "INSERT INTO occupations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
SITE = Caller("(site)", "(site)")
"""Who pays for what nobody is to blame for."""


def _booked(task: ServiceTask, cause: str = "") -> list[tuple[Any, ...]]:
    """The rows of a task's new occupations; with a cause, the site pays for all of them."""
    return [
        _row(task.id, task.device, each, SITE if cause or each.cause else task.caller, cause)
        for each in task.unbooked
    ]


def book_rest(device: str, occupations: Iterable[Occupation], cause: str) -> Any:
    """Book to the site what occupied the device and is not in the store."""
    rows = [
        _row(each.ticket.partition(":")[0], device, Booking(each.began, each.seconds, cause), SITE)
        for each in occupations
    ]
    return lambda store: store.executemany(BOOK, rows)


def _row(id: str, device: str, each: Booking, payer: Caller, cause: str = "") -> tuple[Any, ...]:  # noqa: A002 - the column's name
    period = (each.began, each.seconds, each.began + each.seconds)
    return (id, *period, device, payer.user, payer.account, payer.job, cause or each.cause)


def finish(task: ServiceTask, ending: Ending, answer: Encoded | None = None) -> Any:
    """Record how a task ended; False if it had already ended or a later attempt has started.

    The store may know of fewer attempts, if it failed to record the last one.
    """
    row = {
        "id": task.id,
        "attempts": task.attempts,
        "state": ending.state,
        "started": task.started,
        "ended": ending.at,
        "used": ending.used,
        "error": ending.error,
        "calibration": task.calibration,
        "answer_format": answer.format if answer else None,
        "answer": answer.data if answer else None,
    }

    def action(store: Database) -> bool:
        changed = store.execute(
            "UPDATE tasks SET state = :state, attempts = :attempts, started = :started,"
            " ended = :ended, used = :used, error = :error, calibration = :calibration,"
            " answer_format = :answer_format, answer = :answer"
            " WHERE id = :id AND attempts <= :attempts AND state IN ('queued', 'running')",
            row,
        )
        recorded = changed.rowcount == 1
        store.executemany(BOOK, booked if recorded else unused)
        return recorded

    booked, unused = _booked(task), _booked(task, "its answer came too late")
    return action


EMPTY = "payload = NULL, request = NULL, answer = NULL, answer_format = 'purged'"


def forget(id: str) -> Any:  # noqa: A002 - the column's name
    """Delete a task's payload and answer; keep its usage record."""
    return lambda store: store.execute(f"UPDATE tasks SET {EMPTY} WHERE id = ?", (id,))


def purge(before: float) -> Any:
    """Delete payloads and answers of tasks that ended before a time; keep their usage records.

    Deletes a limited number, so as not to block other writes; returns how many.
    """
    words = (
        f"UPDATE tasks SET {EMPTY}"
        " WHERE sequence IN (SELECT sequence FROM tasks"
        " WHERE ended < ? AND payload IS NOT NULL LIMIT ?)"
    )
    return lambda store: store.execute(words, (before, PURGE_AT_ONCE)).rowcount


def task_of(row: Sequence[Any]) -> ServiceTask:
    """Convert a row to a task, by position, since access by name takes twice as long."""
    _, id, user, account, job, device, name, format, shots, seed, size, seconds, *rest = row  # noqa: A001 - columns
    priority, max_wait, submitted, state, attempts, started, ended, used, error, *sets = rest
    calibration, wanted, within, share, progress, idle, session, route, width, beside = sets
    return ServiceTask(
        id=id,
        caller=Caller(user, account, job),
        device=device,
        name=name,
        format=format,
        shots=shots,
        seed=seed,
        size=size,
        seconds=seconds,
        priority=priority,
        max_wait=max_wait,
        terms=CalibrationTerms(wanted, within),
        calibration=calibration,
        submitted=submitted,
        state=TaskState(state),
        attempts=attempts,
        started=started,
        ended=ended,
        used=used,
        share=share,
        progress=progress,
        idle=idle,
        session=session,
        route=Route.from_json(route) if route else None,
        width=width,
        beside=beside,
        error=error,
    )


def note_calibration(device: str, found: CalibrationSet) -> Any:
    """Record a calibration set, unless it is known; return when it was first seen."""
    words = (
        "INSERT INTO calibrations (id, device, at, metrics) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING"
    )
    row = (found.id, device, found.at, json.dumps(found.metrics))

    def action(store: Database) -> float:
        store.execute(words, row)
        at: float = store.execute(
            "SELECT at FROM calibrations WHERE id = ?", (found.id,)
        ).fetchone()["at"]
        return at

    return action


PIECE = 2**18
"""Bytes of an answer to read at a time."""


def find_blob(id: str, column: str) -> Any:  # noqa: A002 - the column's name
    """Read a task's payload, request or answer, with the format of its answer."""
    words = f"SELECT {column}, answer_format FROM tasks WHERE id = ?"
    return lambda store: store.execute(words, (id,)).fetchone()


def answer_extent(id: str) -> Any:  # noqa: A002 - the column's name
    """Read the row, format and size of a task's answer."""
    words = "SELECT sequence, answer_format, length(answer) AS bytes FROM tasks WHERE id = ?"
    return lambda store: store.execute(words, (id,)).fetchone()


def answer_piece(sequence: int, at: int, size: int) -> Any:
    """Read a piece of an answer, without reading all of it."""
    return lambda store: store.piece_of_answer(sequence, at, size)


class TaskContents:
    """Payloads, requests and answers of tasks, which only their owners see."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def answer(self, caller: Caller, task: ServiceTask) -> Encoded:
        """The answer to the caller's finished task."""
        check_owns(caller, task)
        if task.answer is not None:
            return task.answer
        row = await self._row(task, "answer")
        return Encoded(row["answer_format"], row["answer"])

    async def answer_extent(
        self, caller: Caller, task: ServiceTask, *, partial: bool = False
    ) -> AnswerExtent | None:
        """Extent of the answer; None if there is none or the caller does not own the task.

        With `partial`, also that of the answer so far of a task that gave way.
        """
        if not owns(caller, task) or not (task.state is TaskState.DONE or partial):
            return None
        if task.answer is not None:
            return AnswerExtent(task.answer.format, len(task.answer.data), None)
        row = await self._store.look(answer_extent(task.id))
        if row["answer_format"] is None:
            return None
        _check_kept(task, row)
        return AnswerExtent(row["answer_format"], row["bytes"], row["sequence"])

    async def answer_pieces(self, task: ServiceTask, extent: AnswerExtent) -> AsyncIterator[bytes]:
        """Yield the answer in pieces, read from disk as a slow client takes them."""
        for at in range(0, extent.size, PIECE):
            if task.answer is not None:
                yield task.answer.data[at : at + PIECE]
            else:
                yield await self._store.look(answer_piece(extent.row or 0, at, PIECE))

    async def payload(self, caller: Caller, task: ServiceTask) -> Encoded:
        """The payload of the caller's task, as stored."""
        check_owns(caller, task)
        return Encoded(task.format, (await self._row(task, "payload"))["payload"])

    async def request(self, caller: Caller, task: ServiceTask) -> bytes:
        """The request that submitted the caller's task, in the format of its API."""
        check_owns(caller, task)
        request: bytes | None = (await self._row(task, "request"))["request"]
        if request is None:
            raise NotFound(f"the task {task.id!r} was submitted by another API")
        return request

    async def _row(self, task: ServiceTask, column: str) -> Any:
        row = await self._store.look(find_blob(task.id, column))
        _check_kept(task, row)
        return row


def _check_kept(task: ServiceTask, row: Any) -> None:
    if row["answer_format"] == "purged":
        raise Gone(
            f"payload and answer of the task {task.id!r} have been deleted; it was {task.state}"
        )


PAUSE = 1.0
"""Seconds before retrying a write that failed."""


class Endings:
    """Ends every task exactly once, and retries writes that fail."""

    def __init__(self, world: World, store: Store) -> None:
        self._world = world
        self._store = store
        self._stuck = 0
        self.on_ended: Callable[[ServiceTask], None] = lambda _: None
        self.on_written: Callable[[], None] = lambda: None

    @property
    def stuck(self) -> bool:
        """Whether the store fails to write; then nothing more should start."""
        return self._stuck > 0

    @property
    def deadline(self) -> float | None:
        """Time, on the monotonic clock, until which the devices are ours; None for always."""
        return self._store.deadline

    @property
    def fenced(self) -> bool:
        """Whether another service may have taken over the devices."""
        return self._store.fenced

    async def finish(
        self,
        task: ServiceTask,
        state: TaskState,
        used: float = 0.0,
        error: str | None = None,
        answer: Encoded | None = None,
    ) -> None:
        """Record how a task ended, then announce it.

        Control characters in what a device says are replaced: PostgreSQL keeps no NUL, and a write
        that fails is tried again for ever.
        """
        ending = Ending(state, self._world.now(), used, error and printable(error))
        try:
            recorded = await self.write_with_retry(finish(task, ending, answer))
        except ValueTooLarge as why:
            answer = None
            ending = Ending(
                TaskState.FAILED, ending.at, used, f"its answer cannot be stored: {why}"
            )
            recorded = await self.write_with_retry(finish(task, ending, None))
        task.unbooked.clear()
        if recorded:
            task.end(ending, answer)
            self.on_ended(task)

    async def write_with_retry(self, action: Action[Result]) -> Result:
        """Write, and retry while the disk is full or locked, so that nothing is lost."""
        try:
            return await self._store.write(action)
        except StoreFailed as error:
            self._stuck += 1
            try:
                return await self._retry(lambda: self._store.write(action), error)
            finally:
                self._stuck -= 1
                self.on_written()

    async def look(self, action: Action[Result]) -> Result:
        """Run an urgent query, for which the device waits; retry while the store is away."""
        try:
            return await self._store.look(action, urgent=True)
        except StoreFailed as error:
            return await self._retry(lambda: self._store.look(action, urgent=True), error)

    def note(self, action: Action[object]) -> None:
        """Write soon if the store can, without waiting for it."""
        self._store.post(action)

    async def _retry(
        self, attempt: Callable[[], Coroutine[Any, Any, Result]], error: StoreFailed
    ) -> Result:
        while True:
            log.warning("store failed", extra={"why": str(error)})
            await self._world.sleep(PAUSE)
            try:
                return await attempt()
            except StoreFailed as again:
                error = again
