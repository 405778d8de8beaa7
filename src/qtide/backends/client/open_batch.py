"""An open batch: tasks that belong together, added one by one, found again by the batch's name.

Each task has the key NAME/NUMBER at the service, and its second retry NAME/NUMBER+2. So a program
that was killed opens the batch under the same name and has all its tasks; `len` says how many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qtide.backends.client.client import HOLD, OVER, Client, RemoteTask
from qtide.core.errors import UsageError


class OpenBatch:
    """The tasks of a batch by number; each can be cancelled or tried again on its own."""

    def __init__(self, client: Client, name: str, device: str | None = None) -> None:
        if not name:
            raise UsageError("a batch needs a name, by which it is found again")
        self._client = client
        self._name = name
        self._device = device
        self._closed = False
        self.tasks: list[RemoteTask] = []
        while (task := client.find(f"{name}/{len(self.tasks)}")) is not None:
            self.tasks.append(self._last(task, len(self.tasks)))

    def __len__(self) -> int:
        return len(self.tasks)

    def add(self, payload: Any, **words: Any) -> int:
        """Submit another payload; return its number. The words are those of `Client.submit`."""
        if self._closed:
            raise UsageError(f"the batch {self._name} is closed; open one of another name")
        number = len(self.tasks)
        key = f"{self._name}/{number}"
        self.tasks.append(self._client.submit(payload, self._device, key=key, **words))
        return number

    def close(self) -> None:
        """Add nothing more; `results` then ends with the last task."""
        self._closed = True

    def partial(self) -> dict[int, Any]:
        """The answers that are there by now, by number; asks for each unfinished task once."""
        for task in self.tasks:
            if task.state not in OVER:
                task.refresh()
        return {n: task.result() for n, task in enumerate(self.tasks) if task.state == "done"}

    def failed(self) -> dict[int, str]:
        """Why tasks ended without an answer, by number."""
        ended = ((n, task) for n, task in enumerate(self.tasks) if task.state in OVER)
        return {
            n: task.response["error"] or task.state for n, task in ended if task.state != "done"
        }

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield number and answer of each task as it is done; those that fail are left out."""
        given: set[int] = set()
        while True:
            for number, answer in self.partial().items():
                if number not in given:
                    given.add(number)
                    yield number, answer
            live = [task for task in self.tasks if task.state not in OVER]
            if not live:
                return
            live[0].refresh(HOLD if len(live) == 1 else 1.0)

    def cancel(self, number: int) -> None:
        """Cancel one task."""
        self._task(number).cancel()

    def retry(self, number: int) -> RemoteTask:
        """Submit one task that has ended once more, as it was; it takes the place of the first."""
        again = self._client.retry(self._task(number).id, key=self._key(number))
        self.tasks[number] = again
        return again

    def _task(self, number: int) -> RemoteTask:
        if not 0 <= number < len(self.tasks):
            raise UsageError(
                f"the batch {self._name} has {len(self.tasks)} tasks, counted from 0; "
                f"there is no task {number}"
            )
        return self.tasks[number]

    def _key(self, number: int, times: int | None = None) -> str:
        """The key of the next retry of a task, or of a certain one."""
        if times is None:
            times = 1
            while self._client.find(self._key(number, times)) is not None:
                times += 1
        return f"{self._name}/{number}+{times}"

    def _last(self, task: RemoteTask, number: int) -> RemoteTask:
        """The last retry of a task, or the task itself."""
        times = 1
        while (later := self._client.find(self._key(number, times))) is not None:
            task, times = later, times + 1
        return task
