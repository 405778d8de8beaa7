"""No accepted task is lost, and none is answered differently: tested by kills."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.client.client import Client, ServiceFailed, TaskFailed
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from qtide.service.store import connect
from tests.service.serving import BURSTS, Serve, is_alive, wait_until

HARDY = BURSTS + "retries = 1000\n"


def test_no_task_is_lost_or_answered_twice_however_often_the_service_is_killed(
    serving: Serve,
) -> None:
    service = serving(HARDY)
    clients = [service.client(f"user {n}") for n in range(4)]
    answers: dict[str, list[list[int]]] = {}
    stop = threading.Event()

    def work(client: Client, number: int) -> None:
        done = 0
        while not stop.is_set():
            done += 1
            key = f"{number}-{done}"
            answer = client.run(Burst(0.005, [number, done]), "dev", key=key)
            answers.setdefault(key, []).append(answer)

    threads = [threading.Thread(target=work, args=(client, n)) for n, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    chance = random.Random(3)
    for _ in range(5):
        enough = len(answers) + chance.randint(0, 15)  # no more kills: it dies while it starts
        wait_until(lambda enough=enough: len(answers) >= enough)
        service.kill()
        service.start(ready=False)
    wait_until(lambda: len(answers) > 50)
    stop.set()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    assert all(given == [[int(n) for n in key.split("-")]] for key, given in answers.items())
    rows = _rows(service)
    assert len(rows) == len(answers), "a task was accepted and lost, or accepted twice"
    assert {row["state"] for row in rows} == {"done"}
    accounts = service.operator().call("GET", "/v1/usage", {"everybody": True})
    assert sum(each["tasks"] for each in accounts) == len(rows)
    charged = {each["user"]: each["qpu_seconds"] for each in accounts}
    charged.pop("(site)", None)
    assert sum(charged.values()) == pytest.approx(sum(row["used"] for row in rows))


def test_the_workers_end_with_a_service_that_is_killed(serving: Serve) -> None:
    service = serving(BURSTS)
    workers = service.workers()
    assert workers
    service.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in workers), 10.0)


def test_a_task_whose_worker_is_killed_runs_again_and_pays_for_both(serving: Serve) -> None:
    service = serving(BURSTS)
    task = service.client().submit(Burst(0.5, "in the end"), "dev")
    wait_until(lambda: task.refresh().response["started"])
    first, killed = task.response["started"], time.time()
    os.kill(service.workers()[0], signal.SIGKILL)
    assert task.result(30) == "in the end"
    assert task.response["attempts"] == 2
    assert killed <= task.response["started"] <= task.response["ended"]
    on_the_device = task.response["ended"] - task.response["started"]
    lost = killed - first
    assert (
        0.5 + lost
        <= task.response["qpu_seconds"]
        <= on_the_device + (task.response["started"] - first)
    )


def test_a_task_that_kills_every_worker_is_given_up_and_the_next_one_runs(serving: Serve) -> None:
    service = serving(BURSTS + "retries = 1\n")
    client = service.client()
    deadly = client.submit(Burst(60.0), "dev")
    harmless = client.submit(Burst(0.0, "fine"), "dev")
    for _ in range(2):
        wait_until(lambda: deadly.refresh().response["started"] and service.workers())
        os.kill(service.workers()[0], signal.SIGKILL)
        wait_until(lambda: deadly.refresh().state != "running")
    with pytest.raises(TaskFailed, match="2 times when that stopped"):
        deadly.result(30)
    assert harmless.result(30) == "fine"
    assert harmless.response["attempts"] == 1
    assert (
        0.0
        < deadly.response["qpu_seconds"]
        < deadly.response["ended"] - deadly.response["submitted"]
    )


def test_a_task_that_takes_too_long_is_ended_and_the_next_one_runs(serving: Serve) -> None:
    service = serving(BURSTS + "limit = 0.6\n")
    client = service.client()
    endless = client.submit(Burst(0.5), "dev")
    following = client.submit(Burst(0.0, "fine"), "dev")
    wait_until(lambda: endless.refresh().response["started"])
    os.kill(service.workers()[0], signal.SIGSTOP)
    with pytest.raises(TaskFailed, match=r"occupied the device for more than 0\.6 s"):
        endless.result(30)
    assert following.result(30) == "fine"
    assert following.response["attempts"] == 1
    assert (
        0.6
        <= endless.response["qpu_seconds"]
        <= endless.response["ended"] - endless.response["submitted"]
    )


def test_a_stopped_worker_is_replaced_before_it_begins_a_task_which_costs_nothing(
    serving: Serve,
) -> None:
    service = serving(BURSTS + "limit = 0.5\n")
    client, operator = service.client(), service.operator()
    os.kill(service.workers()[0], signal.SIGSTOP)
    task = client.submit(Burst(0.1, "in the end"), "dev")
    wait_until(lambda: task.refresh().state == "running")
    assert task.response["started"] is None
    assert operator.call("GET", "/v1/usage", {"everybody": True}) == []
    assert task.result(30) == "in the end"
    assert task.response["attempts"] == 1
    assert 0.1 <= task.response["qpu_seconds"] < 0.5


def test_tasks_handed_ahead_are_not_blamed_for_the_deaths_of_their_worker(serving: Serve) -> None:
    service = serving(BURSTS + "retries = 0\n")
    client, operator = service.client(), service.operator()
    operator.call("POST", "/v1/devices/dev/drain", form={})
    deadly = client.submit(Burst(0.009), "dev")
    ahead = [client.submit(Burst(0.0, number), "dev") for number in range(10)]
    os.kill(service.workers()[0], signal.SIGSTOP)
    operator.call("POST", "/v1/devices/dev/resume")
    wait_until(lambda: ahead[-1].refresh().state == "running")
    os.kill(service.workers()[0], signal.SIGKILL)
    assert [task.result(30) for task in ahead] == list(range(10))
    assert {task.response["attempts"] for task in ahead} == {1}
    assert deadly.result(30) is None


def test_a_burst_beyond_the_limit_is_refused_and_its_device_goes_on(serving: Serve) -> None:
    service = serving(BURSTS)
    client, workers = service.client(), service.workers()
    for seconds in (601.0, 1e300):
        with pytest.raises(ServiceFailed, match="no task may for more than 600 s"):
            client.submit(Burst(seconds), "dev")
    assert client.run(Burst(0.0, "fine"), "dev") == "fine"
    assert service.workers() == workers


def test_a_service_that_is_told_to_stop_lets_the_device_finish(serving: Serve) -> None:
    service = serving(BURSTS)
    client, operator = service.client(), service.operator()
    running = client.submit(Burst(0.5, "finished"), "dev")
    wait_until(lambda: running.refresh().state != "queued")
    operator.call("POST", "/v1/devices/dev/drain", form={})
    waiting = client.submit(Burst(0.0, "kept"), "dev")
    assert service.stop() == 0
    assert sorted((row["state"], row["attempts"]) for row in _rows(service)) == [
        ("done", 1),
        ("queued", 0),
    ]
    service.start()
    service.operator().call("POST", "/v1/devices/dev/resume")
    assert running.result(10) == "finished"
    assert waiting.result(10) == "kept"


def test_a_delayed_response_is_sent_when_the_service_stops(serving: Serve) -> None:
    service = serving(BURSTS)
    service.operator().call("POST", "/v1/devices/dev/drain", form={})
    impatient = Client(service.url, service.token(), patience=0.0)
    told: list[str] = []
    held = threading.Thread(
        target=lambda: told.append(impatient.submit(Burst(0.0), "dev", wait=30.0).state)
    )
    held.start()
    wait_until(lambda: _rows(service))
    assert service.stop() == 0
    held.join(30.0)
    assert told == ["queued"], "the service stopped without an answer to the waiting client"


def test_a_device_that_cannot_start_says_why_and_does_not_affect_others(
    serving: Serve, tmp_path: Path
) -> None:
    python = tmp_path / "python"  # which is there, and can import qtide
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *worker*) exit 3; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    service = serving(f'{BURSTS}[devices.broken]\nkind = "burst"\npython = "{python}"\n')
    client = service.client()
    device = client.device("broken")
    assert device["state"] == "error"
    assert "ended" in device["reason"]
    assert client.run(Burst(0.0, "fine"), "dev") == "fine"
    task = client.submit(Burst(0.0), "broken")
    assert task.refresh().response["reason"] == "down"


def _rows(service: LocalService) -> list[dict[str, Any]]:
    store = connect(service.state / "store.sqlite")
    try:
        return [dict(row) for row in store.execute("SELECT state, attempts, used FROM tasks")]
    finally:
        store.close()
