"""A device of the service, used by leases that bring their own tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.leases import remote
from qtide.backends.leases.qpu import Lease, QpuFailed, Slot
from qtide.backends.leases.remote import RemoteQpu
from qtide.backends.payloads.payload import Burst
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.service.local_service import LocalService
from qtide.service.store import connect
from qtide.service.tokens import digest, revoke

DEVICES = '[devices.dev]\nkind = "burst"\nprofile = "superconducting"\n'
LIMIT = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("service"), DEVICES) as served:
        yield served


class Renewable(Slot):
    """A slot whose job ends, so that another job takes its place, with another token."""

    def __init__(self, job: JobContext, tokens: list[str]) -> None:
        super().__init__(job, 0, lambda _: None)
        self._tokens = tokens
        self.lost = True

    async def ready(self) -> None:
        if self.lost and self._tokens:
            self.token, self.lost = self._tokens.pop(0), False


def test_a_task_goes_on_if_the_slot_is_lost_and_held_again(
    service: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "HOLD", 0.1)
    monkeypatch.setattr(remote, "NOTICE", 0.01)
    tokens = [service.token("ada"), service.token("ada")]
    first = tokens[0]

    async def main() -> object:
        world = RealWorld()
        qpu = RemoteQpu.at(world, f"{service.url}/dev", 1)
        with pytest.raises(ServiceFailed, match="qtide token new"):
            qpu.check_admission()
        job = JobContext("job", Ledger("job", world.now), Values(tmp_path))
        slot = Renewable(job, tokens)
        lease = Lease(qpu, job, slot)
        answer = asyncio.create_task(lease.run(Burst(600.0, "late"), None, 0))
        while not (begun := list(service.operator().tasks("running", everybody=True))):
            await asyncio.sleep(0.01)
        assert qpu.profile.shots > 1  # the lease has told us
        store = connect(service.state / "store.sqlite")
        revoke(digest(first))(store)
        store.close()
        slot.lost = True
        while slot.token == first:
            await asyncio.sleep(0.01)
        begun[0].cancel()
        return await answer

    with pytest.raises(QpuFailed, match="cancelled: on request"):
        asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_a_lease_without_a_token_says_why_it_has_none(
    service: LocalService, tmp_path: Path
) -> None:

    async def main() -> object:
        world = RealWorld()
        qpu = RemoteQpu.at(world, f"{service.url}/dev", 1)
        job = JobContext("job", Ledger("job", world.now), Values(tmp_path))
        slot = Renewable(job, [])
        slot.refusal = "job 7 got no token: it holds no slot"
        return await Lease(qpu, job, slot).run(Burst(0.0), None, 0)

    with pytest.raises(ServiceFailed, match=r"a token is needed .* job 7 got no token"):
        asyncio.run(main())


def test_the_service_says_how_long_a_payload_would_wait(
    service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, operator = Client(service.url, service.token("ada")), service.token("op", operator=True)
    monkeypatch.setenv("QTIDE_URL", service.url)
    monkeypatch.setenv("QTIDE_TOKEN", operator)

    async def waits() -> float:
        return await RemoteQpu.at(RealWorld(0.5), f"{service.url}/dev", 1).expected_wait()

    assert asyncio.run(waits()) == 0.0
    tasks = [ada.submit(Burst(30.0), "dev") for _ in range(2)]
    assert 30.0 / 0.5 < asyncio.run(waits()) <= 60.0 / 0.5
    for each in tasks:
        each.cancel()
    Client(service.url, operator).call("POST", "/v1/devices/dev/drain", form={})
    try:
        assert asyncio.run(waits()) == inf
    finally:
        Client(service.url, operator).call("POST", "/v1/devices/dev/resume")


def test_of_a_service_that_is_gone_nobody_can_say(tmp_path: Path) -> None:
    async def waits(short_lived: LocalService) -> float:
        qpu = RemoteQpu.at(RealWorld(), f"{short_lived.url}/dev", 1)
        short_lived.kill()
        return await qpu.backlog()

    with LocalService(tmp_path, DEVICES, "anonymous = true") as short_lived:
        assert asyncio.run(waits(short_lived)) == inf
