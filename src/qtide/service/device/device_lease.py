"""A device that one session holds: its tasks start at once, and everybody else's wait.

A session waits in the queue like a task of its longest time, under the same policy, promises and
quotas. Once it holds the device, only its own tasks start, in their order, each only if it should
end before the session does. The session ends when its owner closes it, when nothing of it was on
the device for its idle limit, or when its time is up. Tasks that are left then wait like others.
"""

from __future__ import annotations

import json

from qtide.backends.payloads.payload import Encoded
from qtide.core.world.world import BackgroundTasks, World
from qtide.service import records
from qtide.service.device.device_queue import DeviceQueue
from qtide.service.records import Endings
from qtide.service.task import Booking, Ending, ServiceTask, TaskState

AT_WORKER = 2
"""Tasks of a session that its worker gets, so that the second is unpacked while the first runs."""
INSTANT = 1e-6
STOPPED = "the session ended with the service"


class DeviceLease:
    """The sessions of a device that are not over, with their waiting tasks."""

    def __init__(self, world: World, queue: DeviceQueue, endings: Endings) -> None:
        self._world = world
        self._queue = queue
        self._endings = endings
        self.ending = BackgroundTasks(world)
        """Ends that are being written."""
        self.holder: ServiceTask | None = None
        """The session that holds the device."""
        self._sessions: dict[str, dict[str, ServiceTask]] = {}
        """The waiting tasks of each session, in order."""
        self._busy = 0.0
        """Seconds that tasks of the holder were on the device."""
        self._since = 0.0
        """Since when nothing of the holder is on the device."""
        self._closed = False

    def know(self, session: ServiceTask) -> None:
        """Note a session that waits for the device."""
        self._sessions.setdefault(session.id, {})

    def take(self, task: ServiceTask) -> bool:
        """Keep a task for its session; return False if that is over."""
        waiting = self._sessions.get(task.session or "")
        if waiting is None:
            task.session = None
            return False
        waiting[task.id] = task
        return True

    def withdraw(self, task: ServiceTask) -> bool:
        """Remove a waiting task of a session; return whether there was one."""
        waiting = self._sessions.get(task.session or "", {})
        return waiting.pop(task.id, None) is not None

    def open(self, session: ServiceTask) -> None:
        """Give the device to a session whose turn it is."""
        self._queue.lease(session, self._world.now())
        session.state, session.attempts = TaskState.RUNNING, 1
        session.started = self._world.now()
        self.holder, self._busy, self._closed = session, 0.0, False
        self._since = self._world.now()

    def close(self, session: ServiceTask) -> bool:
        """Let the holder end as soon as its tasks have left the device; False for any other."""
        if self.holder is not session:
            return False
        self._closed = True
        return True

    @property
    def until(self) -> float:
        """The latest end of the holder."""
        assert self.holder is not None and self.holder.started is not None
        return self.holder.started + self.holder.seconds

    def next(self, on_device: int) -> ServiceTask | None:
        """The next task of the holder to start; None if none may start now."""
        assert self.holder is not None
        if self._closed or on_device >= AT_WORKER:
            return None
        for task in self._sessions[self.holder.id].values():
            if self._world.now() + task.left <= self.until + INSTANT:
                return task
        return None

    def left(self, seconds: float) -> None:
        """Note that a task of the holder has left the device after some seconds on it."""
        self._busy += seconds
        self._since = self._world.now()

    def over_in(self, on_device: int) -> float | None:
        """Seconds until the holder's end; None while something of it is on the device."""
        assert self.holder is not None and self.holder.idle is not None
        if on_device:
            return None
        now = self._world.now()
        if self._closed:
            return 0.0
        idle = max(self._since, self.holder.started or 0.0) + self.holder.idle
        return max(0.0, min(self.until, idle) - now)

    def end(self, why: str | None) -> list[ServiceTask]:
        """Take the device back from the holder; return the tasks that it leaves.

        Its owner pays for the time between its tasks. With a reason, it counts as failed.
        """
        session, held = self._settled()
        self._queue.end_lease(session, held, session.used, self._world.now())
        state = TaskState.FAILED if why else TaskState.DONE
        answer = None if why else Encoded("value", json.dumps({"held": held}).encode())
        self.ending.start(self._endings.finish(session, state, session.used, why, answer))
        return self.forget(session)

    def leave(self) -> None:
        """End the holder with the service."""
        session, _ = self._settled()
        ending = Ending(TaskState.FAILED, self._world.now(), session.used, STOPPED)
        self._endings.note(records.finish(session, ending))

    def _settled(self) -> tuple[ServiceTask, float]:
        """Book the time that the holder did not use; return it, and how long it held the device."""
        session, now = self.holder, self._world.now()
        assert session is not None and session.started is not None
        held = now - session.started
        session.used = max(0.0, held - self._busy)
        session.unbooked.append(Booking(now - session.used, session.used))
        self.holder = None
        return session, held

    def forget(self, session: ServiceTask) -> list[ServiceTask]:
        """Forget a session; return the tasks that still wait for it, which now wait like others."""
        tasks = list(self._sessions.pop(session.id, {}).values())
        for task in tasks:
            task.session = None
        return tasks
