"""Clients and what is made of them can be copied, pickled and forked."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import dimod
import pytest

from qtide.backends.client.backend import Backend
from qtide.backends.client.client import Client
from qtide.backends.client.dimod_sampler import DimodSampler
from qtide.backends.client.handle import QpuHandle
from qtide.backends.client.qiskit_sampler import QiskitSampler
from qtide.service.local_service import LocalService
from tests.backends.client.circuits import bell

MODEL = dimod.BinaryQuadraticModel({"a": 1.0}, {}, 0.0, "SPIN")


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def use(value: Any) -> Any:
    """What the thing gives, through its own connection."""
    if isinstance(value, Client):
        return [each["name"] for each in value.devices()]
    if isinstance(value, QpuHandle):
        return value.run(MODEL, seed=1).first.sample
    if isinstance(value, DimodSampler):
        return value.sample(MODEL, seed=1).first.sample
    if isinstance(value, QiskitSampler):
        (result,) = value.run([bell()], shots=20).result()
        return sum(result.join_data().get_counts().values())
    return sum(value.run(bell(), shots=20).result().get_counts().values())


@pytest.fixture
def things(client: Client) -> list[Any]:
    backend = Backend(client, "complete")
    made = [client, backend, QiskitSampler(backend), DimodSampler(client, "annealer")]
    made.append(QpuHandle(client, "annealer"))
    for each in made:
        use(each)  # so that connections are open
    return made


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_what_uses_the_service_can_be_copied(
    things: list[Any], again: Callable[[Any], Any]
) -> None:
    for thing in things:
        assert use(again(thing)) == use(thing)


def test_a_task_can_be_pickled(client: Client) -> None:
    task = client.submit(MODEL, "annealer", seed=1)
    assert pickled(task).result().first.sample == {"a": -1}


def test_a_pickle_holds_no_token_of_the_environment(
    service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = service.token("ada")
    monkeypatch.setenv("QTIDE_URL", service.url)
    monkeypatch.setenv("QTIDE_TOKEN", token)
    assert token.encode() not in pickle.dumps(Client())
    assert pickled(Client()).access.token == token


def test_parent_and_forked_child_do_not_share_a_connection(client: Client) -> None:
    expected = use(client)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if all(use(client) == expected for _ in range(20)) else 2
            finally:
                os._exit(code)
        children.append(child)
    assert all(use(client) == expected for _ in range(20))
    assert [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children] == [0, 0, 0]
