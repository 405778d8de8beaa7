"""The Python client of the service: hand in, wait, fetch, from this process or another.

Every task has a key, made up if none is given. So a request whose answer was lost can be sent
again without harm, and a service that restarts is waited for.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import urllib3

from qtide.client.access import Access, find_access
from qtide.errors import PhaseError, QtideError
from qtide.payloads.encoded import Encoded, decode_answer, encode

HOLD = 30.0
"""Seconds that the service holds an answer back, until we ask again."""
PATIENCE = 60.0
"""Seconds that a service may be away, as during a restart."""
PAUSE_FIRST, PAUSE_MOST = 0.05, 2.0
OVER = ("done", "failed", "cancelled")


class ServiceFailed(QtideError):  # noqa: N818 - what happened
    """The service refused a request, or did not answer."""

    def __init__(
        self, message: str, status: int = 0, said: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.said = dict(said or {})


class TaskFailed(PhaseError):  # noqa: N818 - what happened
    """A task ended without an answer."""


class Client:
    """One service, as one user."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, patience: float = PATIENCE
    ) -> None:
        self.access: Access = find_access(url, token)
        self._patience = patience
        self._pool = urllib3.PoolManager(maxsize=16, retries=False, ca_certs=self.access.authority)

    def submit(
        self,
        payload: Any,
        device: str | None = None,
        *,
        shots: int | None = None,
        seed: int | None = None,
        name: str = "",
        priority: int = 0,
        max_wait: float | None = None,
        key: str | None = None,
        wait: float = 0.0,
    ) -> RemoteTask:
        """Hand in a payload; when this returns, the service has it for good."""
        encoded = payload if isinstance(payload, Encoded) else encode(payload)
        form = {
            "device": device or self.default_device(encoded.format),
            "format": encoded.format,
            "data": base64.b64encode(encoded.data).decode(),
            "shots": shots,
            "seed": seed,
            "name": name,
            "priority": priority,
            "max_wait": max_wait,
        }
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        said = self.ask("POST", "/v1/tasks", {"wait": wait}, form, headers)
        return RemoteTask(self, said)

    def run(self, payload: Any, device: str | None = None, **words: Any) -> Any:
        """The answer to a payload, in one go."""
        return self.submit(payload, device, wait=HOLD, **words).result()

    def task(self, id: str) -> RemoteTask:  # noqa: A002 - what users call it
        """A task of mine, whichever process handed it in."""
        return RemoteTask(self, self.ask("GET", f"/v1/tasks/{quote(id, safe='')}"))

    def tasks(self, *states: str, everybody: bool = False) -> Iterator[RemoteTask]:
        """My tasks, newest first; for operators, everybody's."""
        before: int | None = None
        while True:
            terms = {"state": states, "everybody": everybody, "before": before}
            said = self.ask("GET", "/v1/tasks", terms)
            yield from (RemoteTask(self, each) for each in said["tasks"])
            before = said["before"]
            if before is None:
                return

    def devices(self) -> list[dict[str, Any]]:
        """All devices and their states."""
        devices: list[dict[str, Any]] = self.ask("GET", "/v1/devices")
        return devices

    def device(self, name: str) -> dict[str, Any]:
        """One device."""
        device: dict[str, Any] = self.ask("GET", f"/v1/devices/{quote(name, safe='')}")
        return device

    def default_device(self, format: str) -> str:  # noqa: A002 - as everywhere here
        """The first device that takes such a payload."""
        for device in self.devices():
            if format in device["properties"].get("formats", ()):
                name: str = device["name"]
                return name
        raise ServiceFailed(f"no device at {self.access.url} takes payloads of format {format!r}")

    def ask(
        self,
        method: str,
        path: str,
        terms: Mapping[str, Any] | None = None,
        form: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """What the service answers; while it is away, ask again."""
        words = {key: value for key, value in (terms or {}).items() if value not in (None, ())}
        url = (
            f"{self.access.url}{path}?{urlencode(words, doseq=True)}"
            if words
            else (f"{self.access.url}{path}")
        )
        head = dict(headers or {}) | {"Accept": "application/json"}
        if self.access.token:
            head["Authorization"] = f"Bearer {self.access.token}"
        body = None
        if form is not None:
            body, head["Content-Type"] = json.dumps(form), "application/json"
        return self._insist(method, url, body, head)

    def _insist(self, method: str, url: str, body: str | None, head: dict[str, str]) -> Any:
        end, pause = time.monotonic() + self._patience, PAUSE_FIRST
        while True:
            try:
                answer = self._pool.request(
                    method, url, body=body, headers=head, timeout=HOLD + 30.0
                )
            except urllib3.exceptions.HTTPError as error:
                failure = ServiceFailed(f"{self.access.url} does not answer: {_brief(error)}")
            else:
                if answer.status < 400:
                    return answer.json()
                failure = _refusal(self.access.url, answer)
            if failure.status not in (0, 503) or time.monotonic() + pause > end:
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MOST)


class RemoteTask:
    """A task at the service, as it was when we asked last."""

    def __init__(self, client: Client, said: dict[str, Any]) -> None:
        self._client = client
        self.said = said

    @property
    def id(self) -> str:
        """By which any process of the same user finds it."""
        name: str = self.said["id"]
        return name

    @property
    def state(self) -> str:
        """queued, running, done, failed or cancelled."""
        state: str = self.said["state"]
        return state

    def refresh(self, wait: float = 0.0) -> RemoteTask:
        """Ask again; the service may hold the answer until the task is over."""
        self.said = self._client.ask("GET", f"/v1/tasks/{self.id}", {"wait": wait})
        return self

    def result(self, timeout: float | None = None) -> Any:
        """The answer, once it is there."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.state not in OVER:
            left = HOLD if end is None else min(HOLD, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"the task {self.id} is still {self.state}; ask again later")
            self.refresh(left)
        if self.state != "done":
            raise TaskFailed(f"the task {self.id} {self.state}: {self.said['error'] or 'by wish'}")
        if "answer" not in self.said:
            self.refresh()
        answer = json.dumps(self.said["answer"]).encode()
        return decode_answer(Encoded(self.said["answer_format"], answer))

    def cancel(self) -> RemoteTask:
        """End it; one that is on the device ends when that lets go of it."""
        self.said = self._client.ask("POST", f"/v1/tasks/{self.id}/cancel")
        return self

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state}>"


def _refusal(url: str, answer: urllib3.BaseHTTPResponse) -> ServiceFailed:
    try:
        said = answer.json()
        message = said["message"]
    except (ValueError, KeyError, TypeError):
        said, message = {}, f"{url} answered with status {answer.status}"
    return ServiceFailed(message, answer.status, said)


def _brief(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).rpartition(": ")[2] or type(error).__name__
