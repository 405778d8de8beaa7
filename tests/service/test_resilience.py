"""What goes wrong around the service: it says so, goes on, and recovers by itself."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import urllib3

from qtide.backends.client.client import ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import BackgroundTasks
from qtide.service.admission import Holder
from qtide.service.apis import admission_api
from qtide.service.configuration import SlurmSection
from qtide.service.local_service import QTIDE, LocalService
from qtide.service.task import Caller
from qtide.service.tokens import NotAllowed
from tests.service.attacking import line
from tests.service.serving import BURSTS, Serve, wait_until
from tests.service.simulation import Site


def test_a_background_task_goes_on_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    world, tried = VirtualWorld(), list[float]()

    async def work() -> None:
        tried.append(world.now())
        if len(tried) in (2, 3, 4):
            raise (OSError, sqlite3.OperationalError, KeyError)[len(tried) - 2]("no luck")

    async def main() -> None:
        background = BackgroundTasks(world)
        background.repeat("watch", work, 10.0)
        await world.sleep(40.0)
        await background.cancel()

    with caplog.at_level(logging.ERROR):
        world.run(main())
    assert tried == [0.0, 10.0, 11.0, 13.0, 17.0, 27.0, 37.0]
    assert len(caplog.records) == 3


def test_the_token_of_a_job_that_ended_while_the_store_was_locked_ends_soon_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is good until then; other work that fails waits for up to a minute."""
    site, job, ended = Site(VirtualWorld(), {}), Holder(7, 0), set[Holder]()

    class Slurm:
        def __init__(self, *_: object, **__: object) -> None:
            self.queries = 0

        async def running(self, known: set[Holder]) -> set[Holder]:
            return known - ended

        def close(self) -> None:
            pass

    async def no_warning(_: object) -> str:
        return ""

    monkeypatch.setattr(admission_api, "SlurmAdmission", Slurm)
    monkeypatch.setattr(admission_api, "without_effect", no_warning)

    async def main() -> None:
        await site.open()
        service = site.service
        settings = SlurmSection(conf=Path("slurm.conf"), job_record="none")
        admission = admission_api.JobAdmission(service, settings)
        token = await service.register.issue(Caller("ada", job=7), 1e6, "job 7", job)
        async with admission.life():
            await site.world.sleep(10.0)
            site.store.broken = True
            ended.add(job)
            await site.world.sleep(300.0)
            assert service.register.caller(token).job == 7
            site.store.broken = False
            await site.world.sleep(admission_api.WATCH + 0.1)
            with pytest.raises(NotAllowed, match="its job has ended"):
                service.register.caller(token)
        await service.close()

    site.world.run(main())


def test_connections_do_not_take_the_files_that_the_service_needs(tmp_path: Path) -> None:
    """With 200 files in all, 300 connections leave enough for the store and its devices."""
    limits = "[limits]\nconnections_per_peer = 500\n"
    service = LocalService(tmp_path, BURSTS + limits, most_files=200).start()
    with ExitStack() as opened:
        opened.callback(service.stop)
        for _ in range(300):
            opened.enter_context(line(service))
        files = len(list(Path(f"/proc/{service.pid}/fd").iterdir()))
        assert files < 150
        for pid in service.workers():
            os.kill(pid, 9)  # a device needs files to be started again
        assert service.client("ada").run(Burst(0.0, "in"), "dev") == "in"


def test_a_full_disk_is_told_and_leaves_room_for_answers(serving: Serve) -> None:
    limits = f"\n[limits]\ndisk_reserve = {2**60}\n"
    service = serving(BURSTS + limits)
    health = urllib3.request("GET", f"{service.url}/health", retries=False)
    assert health.status == 503
    assert "the disk is full" in health.json()["store"]
    with pytest.raises(ServiceFailed, match="the disk of the service is full") as refused:
        service.client("ada").submit(Burst(0.0), "dev")
    assert refused.value.status == 507


def test_a_locked_store_is_waited_for_and_then_everything_goes_on(serving: Serve) -> None:
    service = serving(BURSTS)
    client = service.client("ada")
    store = sqlite3.connect(service.state / "store.sqlite", isolation_level=None)
    store.execute("BEGIN EXCLUSIVE")
    with ThreadPoolExecutor(1) as other:
        try:
            answer = other.submit(client.run, Burst(0.0, "on"), "dev")
            assert client.devices()[0]["name"] == "dev"  # reading needs no lock
            assert not answer.done()
        finally:
            store.execute("ROLLBACK")
            store.close()
        assert answer.result(20) == "on"


def test_a_token_that_cannot_be_written_is_told_in_one_sentence(serving: Serve) -> None:
    service = serving(BURSTS)
    service.kill()
    script = f"ulimit -f 0; exec {QTIDE} token new ada --state {service.state}"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "cannot be" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_start_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with LocalService(tmp_path, BURSTS) as first:
        state = tmp_path / "second"
        file = tmp_path / "second.toml"
        file.write_text(f'listen = "127.0.0.1:{first.port}"\nstate = "{state}"\n{BURSTS}')
        for _ in range(2):
            done = subprocess.run(
                [QTIDE, "serve", file], capture_output=True, text=True, timeout=60, check=False
            )
            assert "cannot listen" in done.stderr
            assert not state.exists()
        state.mkdir()
        (state / "kept").write_text("")
        subprocess.run([QTIDE, "serve", file], capture_output=True, timeout=60, check=False)
        assert [each.name for each in state.iterdir()] == ["kept"]


def test_refusals_are_counted(serving: Serve) -> None:
    service = serving(BURSTS)
    with pytest.raises(ServiceFailed):
        service.client("ada").device("nowhere")
    text = urllib3.request("GET", f"{service.url}/metrics").data.decode()
    assert 'qtide_refusals_total{reason="not_found",status="404"} 1.0' in text
    wait_until(lambda: json.dumps(service.log()).count("serving") >= 1, 5)
