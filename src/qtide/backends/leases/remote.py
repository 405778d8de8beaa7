"""A QPU behind the vQPU service, which provides its queue and its clock.

Each payload has a key made of the run, the phase and the payload. So a driver that is killed and
restarted finds its task instead of submitting it twice.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Any
from urllib.parse import urlsplit

from qtide.backends.client.client import QUOTA_PATIENCE, Client, RemoteTask, ServiceFailed
from qtide.backends.client.client import TaskFailed as RemoteFailed
from qtide.backends.devices.profile import Profile
from qtide.backends.leases.qpu import FifoSlots, Payload, Qpu, QpuFailed, QpuTask, Slot
from qtide.backends.payloads.payload import Burst, Encoded, PayloadRefused, encode
from qtide.core.errors import UsageError
from qtide.core.forecasts import Outlook
from qtide.core.world.real import RealWorld

FIRST = 2.0
"""Seconds that a service may be unreachable before a run starts."""
HOLD = 2.0
"""Seconds between two queries about a task; an expected end is never older than this."""
UNKNOWN_TOKEN = 401
"""HTTP status of a request whose token is missing or no longer valid."""
NOTICE, NOTICES = 0.5, 20
"""Seconds between two checks of a slot whose token has expired, and the number of checks."""
LONG = 600.0
"""Expected wait in seconds for a device that is drained or down."""


@dataclass(eq=False)
class RemoteQpuTask(QpuTask):
    """A payload submitted to the service."""

    qpu: RemoteQpu
    payload: Payload
    submitted: float
    seconds: float
    response: dict[str, Any] = field(default_factory=dict)
    """The service's last response about the task."""

    @property
    def outlook(self) -> Outlook:
        """The service's expectation; before its first response, as if there were no queue."""
        usual = self.submitted
        if self.response and self.response.get("expected_start") is None:
            usual = self.qpu.world.now() + LONG  # unknown, as the device is drained or down
        start = self.qpu.moment(self.response.get("expected_start"), usual)
        end = self.qpu.moment(self.response.get("expected_end"), usual + self.seconds)
        return Outlook(self.response.get("position") or 0, start, end)

    def update(self, response: dict[str, Any]) -> None:
        """Store the service's latest response."""
        if response["started"] is not None and self.response.get("started") is None:
            self.payload.begun()
        self.response = response

    async def run(self) -> Any:
        """Submit the payload and wait for the answer."""
        return await self.qpu.serve(self)


def _check_quota(remote: RemoteTask, *, over: bool) -> None:
    """Raise QpuFailed if a task has to wait for the quota of another day."""
    if over and remote.quota_wait > QUOTA_PATIENCE:
        raise QpuFailed(
            f"the task {remote.id} was withdrawn: its quota is used up until another day "
            "(qtide usage --left); resume the run then"
        )


class RemoteQpu(Qpu):
    """A service's device; without a name, the first one that takes the payload."""

    def __init__(self, world: RealWorld, url: str, device: str | None, slots: int) -> None:
        self._refused: ServiceFailed | None = None
        super().__init__(world, self._first_profile(url, device), slots)
        self._world = world
        self._url = self.service = url
        self._clients: dict[str | None, Client] = {None: Client(url)}
        self._device = device
        self._scale = world.scale
        self._tries: dict[str, int] = {}

    @staticmethod
    def at(world: RealWorld, url: str, slots: int) -> RemoteQpu:
        """The QPU at a URL such as http://HOST:PORT/DEVICE; the device is optional."""
        parts = urlsplit(url)
        device = parts.path.strip("/") or None
        return RemoteQpu(world, f"{parts.scheme}://{parts.netloc}", device, slots)

    def check_admission(self) -> None:
        """Raise the refusal if we have no token and no cluster grants leases that may bring one."""
        if self._refused is not None and isinstance(self.admission, FifoSlots):
            raise self._refused

    async def check(self, payload: Any, shots: int | None = None) -> None:
        """Check only that the payload has a format; the service checks the rest."""
        encode(payload)

    async def describe(self) -> dict[str, Any]:
        """The service's description of the device."""
        return await self.world.offload(self._described)

    async def backlog(self) -> float:
        """The service's estimate; 0 without a valid token, as the service then does not tell."""
        try:
            return await self.world.offload(self._backlog)
        except ServiceFailed as error:
            return 0.0 if error.status == UNKNOWN_TOKEN else inf

    def _backlog(self) -> float:
        """Expected wait for the device, or the shortest of all, asked with our newest token."""
        devices = Client(self._url, next(reversed(self._clients)), patience=FIRST).devices()
        named = None if _is_class(self._device) else self._device
        found = [each for each in devices if named in (None, each["name"])]
        waits = [each.get("expected_wait", 0.0) for each in found]  # older services do not say
        return min((inf if each is None else each / self._scale for each in waits), default=inf)

    def renewed(self, slots: int) -> RemoteQpu:
        """The same device of the same service, with its own new leases."""
        return RemoteQpu(self._world, self._url, self._device, slots)

    def _described(self) -> dict[str, Any]:
        """Description of the named device, or of the only one."""
        found = _devices(self._clients[None], self._device)
        if len(found) != 1:
            url, known = self._url, ", ".join(each["name"] for each in found)
            raise UsageError(
                f"the program asks for its target, but {url} has several devices: name one of "
                f"{known}, as in --qpu {url}/{found[0]['name']}"
            )
        if not found[0]["properties"]:
            raise ServiceFailed(
                f"the program asks for its target, but nobody knows what {found[0]['name']} takes "
                f"while it is {found[0]['state']}; resume the run when it is back"
            )
        return found[0]

    def task(self, payload: Payload) -> RemoteQpuTask:
        """Create a task; it is submitted to the service when it runs."""
        seconds = self.profile.seconds(payload.content, payload.shots)
        return RemoteQpuTask(self, payload, self.world.now(), seconds)

    def moment(self, unix: float | None, otherwise: float) -> float:
        """Convert a time of the service to the run's clock; `otherwise` if it is None."""
        return otherwise if unix is None else unix / self._scale

    async def serve(self, task: RemoteQpuTask) -> Any:
        """Submit a task and wait for the service's answer."""
        remote = await self.world.offload(self._submit, task)
        try:
            end = self.world.now() + QUOTA_PATIENCE / self._scale
            while remote.response["ended"] is None:
                task.update(remote.response)
                _check_quota(remote, over=self.world.now() > end)
                remote = await self._followed(remote, task.payload.slot)
        except BaseException:
            self.world.start(self._withdraw(remote))
            raise
        self._account(task, remote.response)
        try:
            return remote.result()
        except RemoteFailed as error:
            raise QpuFailed(str(error)) from None

    async def _followed(self, remote: RemoteTask, slot: Slot | None) -> RemoteTask:
        """Refresh a task; if the token expired with the slot's job, use the slot's next token."""
        token = slot.token if slot is not None else None
        try:
            return await self.world.offload(remote.refresh, HOLD)
        except ServiceFailed as error:
            if slot is None or token is None or error.status != UNKNOWN_TOKEN:
                raise
            if not await self._renewed(slot, token):
                raise
        return await self.world.offload(self._client(slot).task, remote.id)

    async def _renewed(self, slot: Slot, old: str) -> bool:
        """Wait for a lost slot to be held again; whether it has a new token."""
        for _ in range(NOTICES):  # the service may notice the loss before we do
            await slot.ready()
            if slot.token != old:
                return slot.token is not None
            await self.world.sleep(NOTICE / self._scale)
        return False

    def _client(self, slot: Slot | None) -> Client:
        """A client with the slot's token, if it has one, otherwise with our own."""
        token = slot.token if slot is not None else None
        if token not in self._clients:
            own = self._clients[None]
            self._clients = {None: own, token: Client(self._url, token)}
        if token is not None and self._refused is not None:
            self.profile, self._refused = _profile(self._clients[token], self._device), None
        return self._clients[token]

    def _first_profile(self, url: str, device: str | None) -> Profile:
        """The device's profile; an empty one if only a lease's token may read it."""
        try:
            return _profile(Client(url, patience=FIRST), device)
        except ServiceFailed as error:
            if error.status != UNKNOWN_TOKEN:
                raise
            self._refused = error
        return Profile(device or "qpu", 0.0, 0.0, 1)

    async def _withdraw(self, remote: RemoteTask) -> None:
        with suppress(ServiceFailed):
            await self.world.offload(remote.cancel)

    def _submit(self, task: RemoteQpuTask) -> RemoteTask:
        payload = task.payload
        encoded = encode(self._scaled(payload.content))
        key = self._key(payload, encoded)
        try:
            return self._client(
                payload.slot
            ).submit(
                encoded,
                self._device,
                shots=payload.shots,
                seed=payload.seed >> 1,  # the service accepts seeds up to 2 ** 63
                name=payload.job.name[:200],
                key=key,
            )
        except ServiceFailed as error:
            if error.response.get("error") == "payload_refused":
                raise PayloadRefused(str(error)) from None
            if error.status == UNKNOWN_TOKEN and payload.slot and payload.slot.refusal:
                raise ServiceFailed(f"{error}; {payload.slot.refusal}", error.status) from None
            raise

    def _key(self, payload: Payload, encoded: Encoded) -> str:
        """The key of an attempt; a repeated payload is a new task."""
        words = f"{payload.job.values.folder.absolute()} {payload.seed} {payload.shots} ".encode()
        place = blake2b(words + encoded.data, digest_size=16).hexdigest()
        number = self._tries[place] = self._tries.get(place, 0) + 1
        return f"{place}-{number}"

    def _scaled(self, content: Any) -> Any:
        """Convert a burst from the run's seconds to the service's real seconds."""
        if isinstance(content, Burst) and content.seconds is not None:
            return Burst(content.seconds * self._scale, content.answer)
        return content

    def _account(self, task: RemoteQpuTask, response: dict[str, Any]) -> None:
        """Record the service's measurements in the ledger."""
        ledger, now = task.payload.job.ledger, self.world.now()
        started = self.moment(response["started"], now)
        kind = type(task.payload.content).__name__
        ledger.enter("wait", "qpu", task.submitted, started, "the device")
        if response["started"] is not None:
            end = started + response["qpu_seconds"] / self._scale
            ledger.enter("busy", f"qpu/{response['device']}", started, end, kind)


def _is_class(device: str | None) -> bool:
    """Whether a name is that of a class of devices, such as any:gate."""
    return device is not None and device.startswith("any:")


def _devices(client: Client, device: str | None) -> list[dict[str, Any]]:
    """The device of that name, all of them without a name; for a class, one that stands for it."""
    if device is not None and _is_class(device):
        return [client.device(device)]
    return [each for each in client.devices() if device in (None, each["name"])]


def _profile(client: Client, device: str | None) -> Profile:
    """The timing profile of the device, according to the service."""
    found = _devices(client, device)
    if not found:
        known = ", ".join(each["name"] for each in client.devices())
        raise UsageError(f"{client.access.url} has no device {device!r}; it has: {known}")
    timing = found[0]["profile"]
    return Profile(found[0]["name"], timing["payload_s"], timing["shot_s"], int(timing["shots"]))
