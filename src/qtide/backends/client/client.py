"""The Python client of the service: submit tasks, wait for them and fetch answers from any process.

Every task has an idempotency key, generated if none is given. So the client can safely repeat a
request whose answer was lost, and can wait for a service that restarts.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import urllib3

from qtide.backends.client.access import (
    DEVICE,
    FILE,
    LOCAL,
    PAUSE,
    PAUSE_MOST,
    Access,
    UnixPool,
    connections,
    find_access,
    why_no_token,
)
from qtide.backends.payloads.payload import Encoded, decode_answer, encode
from qtide.core.errors import BackendFailed, PhaseError

if TYPE_CHECKING:
    from qtide.backends.client.open_batch import OpenBatch

HOLD = 30.0
"""Seconds that the service holds a request while the task runs; then the client asks again."""
PATIENCE = 60.0
"""Seconds that a service may be unavailable, for example during a restart."""
START_LIMIT, START_PAUSE = 60.0, 0.1
"""Seconds that a device may take to start, and seconds between two checks."""
NO_ANSWER, UNAUTHORISED, UNAVAILABLE = 0, 401, 503
CONNECT_LIMIT, ANSWER_LIMIT = 5.0, 30.0
"""Seconds to connect, and seconds to answer in addition to those that a request may be held."""
STANDBY_HOLD, STANDBY_LIMIT = 3.0, 3.0
"""Instead of `HOLD` and `ANSWER_LIMIT`, if another service may take over meanwhile."""
STANDBY_PAUSE = 0.2
"""Longest pause, in seconds, before asking again which of several services leads."""
SESSION = "QTIDE_SESSION"
OVER = ("done", "failed", "cancelled")
QUOTA_PATIENCE = 60.0
"""Seconds that a caller without a timeout waits for a quota, while its job holds nodes."""


class ServiceFailed(BackendFailed):
    """The service refused a request, or did not answer."""

    def __init__(
        self, message: str, status: int = 0, response: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.response = dict(response or {})


class TaskFailed(PhaseError):  # noqa: N818 - what happened
    """A task ended without an answer."""


class QuotaUsedUp(TaskFailed):
    """A task has waited for its quota for longer than its caller may wait; it stays queued."""


class Client:
    """One service, used as one user.

    A copy, an unpickled client and a client in a forked process open their own connections. A
    pickle contains the token only if it was passed in; one from the environment is read again when
    unpickling.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, patience: float = PATIENCE
    ) -> None:
        self._given = url, token
        self._patience = patience
        self.access: Access = find_access(url, token)
        first = LOCAL if self.access.socket else self.access.url
        self._roots = deque((first, *self.access.standbys))
        """Roots of the services' URLs; the one that answered last comes first."""
        hold = STANDBY_HOLD + STANDBY_LIMIT if self.access.standbys else HOLD + ANSWER_LIMIT
        self._limits = urllib3.Timeout(connect=CONNECT_LIMIT, read=hold)
        self._pools: dict[int, urllib3.PoolManager | UnixPool] = {}
        """Connection pools by the id of the process that opened them."""

    def __copy__(self) -> Client:
        other = Client.__new__(Client)
        vars(other).update(vars(self) | {"_pools": {}, "_roots": deque(self._roots)})
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Client:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _client, (*self._given, self._patience)

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
        calibration: str | None = None,
        calibrated_within: float | None = None,
        session: str | None = None,
        min_fidelity: float | None = None,
        beside_others: bool = False,
    ) -> RemoteTask:
        """Submit a payload; on return, the service has stored it durably.

        It runs only on the set `calibration`, or only if the device was calibrated within the last
        `calibrated_within` seconds; if that fails, it is refused or ends without a charge. The
        device may be a class such as `any:gate`; then it goes where it should end first. It is
        refused where its expected fidelity is below `min_fidelity`. With `beside_others`, it may
        run at the same time as others' circuits, on other qubits of the device, for less.
        """
        form = self._form(payload, device) | {
            "shots": shots,
            "seed": seed,
            "name": name,
            "priority": priority,
            "max_wait": max_wait,
            "calibration": calibration,
            "calibrated_within": calibrated_within,
            "min_fidelity": min_fidelity,
            "beside_others": beside_others or None,
        }
        form["session"] = session or _session_for(form["device"])
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        given = {name: value for name, value in form.items() if value is not None}
        response = self.call("POST", "/v1/tasks", {"wait": wait}, given, headers)
        return RemoteTask(self, response).warn_if_over_quota()

    def estimate(
        self,
        payload: Any,
        device: str | None = None,
        *,
        shots: int | None = None,
        priority: int = 0,
    ) -> dict[str, Any]:
        """What a payload would take, and when it would start, without submitting it.

        `likely_start` has three times: nine of ten tasks start between the first and the last.
        """
        form = self._form(payload, device) | {"shots": shots, "priority": priority}
        found: dict[str, Any] = self.call("POST", "/v1/estimates", form=form)
        return found

    def run(self, payload: Any, device: str | None = None, **words: Any) -> Any:
        """Submit a payload and wait for its answer; cancels it if its quota is used up."""
        task = self.submit(payload, device, wait=HOLD, **words)
        try:
            return task.result()
        except QuotaUsedUp:
            task.cancel()  # nobody has its id, and nobody would read its answer tomorrow
            raise

    def session(
        self,
        device: str,
        seconds: float,
        *,
        idle: float = 5.0,
        max_wait: float | None = None,
        priority: int = 0,
    ) -> DeviceSession:
        """Ask for a device for a while; once it holds the device, its tasks start at once.

        It ends when it is closed, after `idle` seconds without a task, or after `seconds`.
        """
        form = {"device": device, "seconds": seconds, "idle": idle, "priority": priority}
        form |= {} if max_wait is None else {"max_wait": max_wait}
        key = {"Idempotency-Key": str(uuid.uuid4())}
        return DeviceSession(self, self.call("POST", "/v1/sessions", form=form, headers=key))

    def task(self, id: str) -> RemoteTask:  # noqa: A002 - what users call it
        """Return a task of this user, whichever process submitted it."""
        return RemoteTask(self, self.call("GET", f"/v1/tasks/{quote(id, safe='')}"))

    def retry(self, id: str, key: str | None = None) -> RemoteTask:  # noqa: A002 - what users call it
        """Submit a task that has ended once more, with the same payload, shots and seed."""
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        path = f"/v1/tasks/{quote(id, safe='')}/retry"
        return RemoteTask(self, self.call("POST", path, headers=headers))

    def batch(self, name: str, device: str | None = None) -> OpenBatch:
        """Open a batch of tasks, or find the one of that name again."""
        from qtide.backends.client.open_batch import OpenBatch

        return OpenBatch(self, name, device)

    def find(self, key: str) -> RemoteTask | None:
        """Return the task that this user submitted with a key, if there is one."""
        found = self.call("GET", "/v1/tasks", {"key": key})["tasks"]
        return RemoteTask(self, found[0]) if found else None

    def tasks(self, *states: str, everybody: bool = False) -> Iterator[RemoteTask]:
        """Yield this user's tasks, newest first; operators can list everybody's."""
        before: int | None = None
        while True:
            terms = {"state": states, "everybody": everybody, "before": before}
            response = self.call("GET", "/v1/tasks", terms)
            yield from (RemoteTask(self, each) for each in response["tasks"])
            before = response["before"]
            if before is None:
                return

    def devices(self) -> list[dict[str, Any]]:
        """All devices and their states."""
        devices: list[dict[str, Any]] = self.call("GET", "/v1/devices")
        return devices

    def device(self, name: str) -> dict[str, Any]:
        """One device and its state."""
        device: dict[str, Any] = self.call("GET", f"/v1/devices/{quote(name, safe='')}")
        return device

    def started_device(self, name: str) -> dict[str, Any]:
        """One device, after waiting for its start: before that, it has no properties."""
        end = time.monotonic() + START_LIMIT
        while (found := self.device(name))["state"] == "starting" and time.monotonic() < end:
            time.sleep(START_PAUSE)
        return found

    def default_device(self, format: str) -> str:  # noqa: A002 - as everywhere here
        """The first device that takes payloads of this format."""
        for known in self.devices():
            device = known if known["state"] != "starting" else self.started_device(known["name"])
            if format in device["properties"].get("formats", ()):
                name: str = device["name"]
                return name
        raise ServiceFailed(f"no device at {self.access.url} takes payloads of format {format!r}")

    def _form(self, payload: Any, device: str | None) -> dict[str, Any]:
        """The entries of a request that name a payload and its device."""
        encoded = payload if isinstance(payload, Encoded) else encode(payload)
        return {
            "device": device or self.default_device(encoded.format),
            "format": encoded.format,
            "data": base64.b64encode(encoded.data).decode(),
        }

    def call(
        self,
        method: str,
        path: str,
        terms: Mapping[str, Any] | None = None,
        form: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the service's answer; retry while it is unavailable."""
        words = {key: value for key, value in (terms or {}).items() if value not in (None, ())}
        if self.access.standbys and "wait" in words:
            words["wait"] = min(words["wait"], STANDBY_HOLD)
        query = f"?{urlencode(words, doseq=True)}" if words else ""
        head = dict(headers or {}) | {"Accept": "application/json"}
        if self.access.token:
            head["Authorization"] = f"Bearer {self.access.token}"
        body = None
        if form is not None:
            body, head["Content-Type"] = json.dumps(form), "application/json"
        return self._answer(method, f"{path}{query}", body, head)

    def _answer(self, method: str, place: str, body: str | None, head: dict[str, str]) -> Any:
        """Ask the service, when it has time for this user; ask each standby until one leads."""
        end, pause, turn = time.monotonic() + self._patience, PAUSE, 0
        while True:
            try:
                return self._asked(method, f"{self._roots[0]}{place}", body, head)
            except ServiceFailed as failure:
                rest = failure.response.get("retry_after", 0)  # the user's time is used up
                if 0 < rest <= end - time.monotonic():
                    time.sleep(rest)
                    continue
                another = len(self._roots) > 1 and failure.status in (NO_ANSWER, UNAVAILABLE)
                if not another or time.monotonic() > end:
                    raise
            self._roots.rotate(-1)
            turn += 1
            if turn % len(self._roots) == 0:  # none of them leads now
                time.sleep(pause)
                pause = min(2 * pause, STANDBY_PAUSE)

    def _asked(self, method: str, url: str, body: str | None, head: dict[str, str]) -> Any:
        try:
            answer = self._connections().request(
                method, url, body=body, headers=head, timeout=self._limits, redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise ServiceFailed(_no_answer(self.access, _brief(error)), NO_ANSWER) from None
        if answer.status >= 400:
            raise _refusal(self.access, answer)
        return answer.json() if answer.data else None

    def _connections(self) -> urllib3.PoolManager | UnixPool:
        """The pool of this process: after a fork, two processes must not share a connection."""
        process = os.getpid()
        if process not in self._pools:
            self._pools = {process: connections(self.access, self._patience)}
        return self._pools[process]


class RemoteTask:
    """A task at the service, in the state last fetched."""

    def __init__(self, client: Client, response: dict[str, Any]) -> None:
        self._client = client
        self.response = response
        self._warned = False

    @property
    def id(self) -> str:
        """The id by which any process of the same user finds the task."""
        name: str = self.response["id"]
        return name

    @property
    def state(self) -> str:
        """The state: queued, running, done, failed or cancelled."""
        state: str = self.response["state"]
        return state

    def refresh(self, wait: float = 0.0) -> RemoteTask:
        """Fetch the state again; the service waits up to `wait` seconds for the task to end."""
        self.response = self._client.call("GET", f"/v1/tasks/{self.id}", {"wait": wait})
        return self.warn_if_over_quota()

    @property
    def quota_wait(self) -> float:
        """Seconds until the quota that holds the task back has room again; 0 if none does."""
        if self.response.get("reason") != "quota" or self.state in OVER:
            return 0.0
        return max(0.0, (self.response.get("expected_start") or inf) - time.time())

    def warn_if_over_quota(self) -> RemoteTask:
        """Say once that the task waits for its quota."""
        if self.response.get("reason") == "quota" and not self._warned:
            self._warned = True
            warnings.warn(self._quota(), stacklevel=3)
        return self

    def _quota(self) -> str:
        start = self.response.get("expected_start")
        when = time.strftime(" until %Y-%m-%d %H:%M", time.localtime(start)) if start else ""
        return f"the task {self.id} waits{when}: the quota is used up; see: qtide usage --left"

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer and return it.

        Without a timeout, raises QuotaUsedUp instead of waiting for the quota of another day.
        """
        began = time.monotonic()
        end = None if timeout is None else began + timeout
        while self.state not in OVER:
            left = HOLD if end is None else min(HOLD, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"the task {self.id} is still {self.state}; ask again later")
            if end is None and self.quota_wait > QUOTA_PATIENCE:
                left = min(left, began + QUOTA_PATIENCE - time.monotonic())
                if left <= 0:
                    raise QuotaUsedUp(f"{self._quota()}; to wait for it, give result() a timeout")
            self.refresh(left)
        if self.state != "done":
            raise TaskFailed(
                f"the task {self.id} {self.state}: {self.response['error'] or 'on request'}"
            )
        if "answer" not in self.response:
            self.refresh()
        return _answer_in(self.response)

    def partial(self) -> Any:
        """Return what was measured before the task gave way to another; None if nothing was."""
        found = self._client.call("GET", f"/v1/tasks/{self.id}", {"partial": True})
        return _answer_in(found) if "answer" in found else None

    def why(self) -> list[str]:
        """Sentences on what stands before the task, which rule put it there, what would help."""
        sentences: list[str] = self._client.call("GET", f"/v1/tasks/{self.id}/why")["sentences"]
        return sentences

    def cancel(self) -> RemoteTask:
        """Cancel the task; if it is on the device, it ends when the device releases it."""
        self.response = self._client.call("POST", f"/v1/tasks/{self.id}/cancel")
        return self

    def forget(self) -> None:
        """Cancel the task and delete its payload and answer; its usage stays in the accounts."""
        self._client.call("DELETE", f"/v1/tasks/{self.id}")

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state}>"


class DeviceSession(RemoteTask):
    """A session: a device that only this user's tasks use for a while; a task until its end."""

    def __enter__(self) -> DeviceSession:
        try:
            return self.begun()
        except BaseException:
            self.close()  # else it would hold the device, and be charged, for nobody
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def device(self) -> str:
        """The device that it holds."""
        name: str = self.response["device"]
        return name

    def begun(self, timeout: float | None = None) -> DeviceSession:
        """Wait until the session holds its device."""
        end, pause = inf if timeout is None else time.monotonic() + timeout, PAUSE
        while self.state == "queued":
            if time.monotonic() > end:
                raise TimeoutError(f"the session {self.id} is still queued; ask again later")
            time.sleep(pause)
            pause = min(1.5 * pause, PAUSE_MOST / 4)
            self.refresh()
        if self.state in ("failed", "cancelled"):
            raise TaskFailed(f"the session {self.id} {self.state}: {self.response['error'] or ''}")
        return self

    def submit(self, payload: Any, **words: Any) -> RemoteTask:
        """Submit a payload; it starts as soon as the session's earlier tasks have left."""
        return self._client.submit(payload, self.device, session=self.id, **words)

    def run(self, payload: Any, **words: Any) -> Any:
        """Return the answer to a payload."""
        return self.submit(payload, wait=HOLD, **words).result()

    def close(self) -> None:
        """End the session; tasks of it that have not started wait like others."""
        if self.state not in OVER:
            self.cancel()


def _session_for(device: str) -> str | None:
    """The session that `qtide session` opened for this process, if it holds that device."""
    return os.environ.get(SESSION) if os.environ.get(DEVICE) == device else None


def _answer_in(response: Mapping[str, Any]) -> Any:
    answer = json.dumps(response["answer"]).encode()
    return decode_answer(Encoded(response["answer_format"], answer))


def _client(url: str | None, token: str | None, patience: float) -> Client:
    """Recreate a client from its pickle."""
    return Client(url, token, patience=patience)


def _refusal(access: Access, answer: urllib3.BaseHTTPResponse) -> ServiceFailed:
    try:
        response = answer.json()
        message = response["message"]
    except (ValueError, KeyError, TypeError):
        response, message = {}, f"{access.url} answered with status {answer.status}"
    if answer.status == UNAUTHORISED and access.token is None:
        message += why_no_token(access.url)
    return ServiceFailed(message, answer.status, response)


def _no_answer(access: Access, why: str) -> str:
    sentence = f"{access.url} does not answer: {why}"
    if access.state is not None:
        sentence += f" (if another service has taken its place, delete {access.state / FILE})"
    return sentence


def _brief(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).rpartition(": ")[2] or type(error).__name__
