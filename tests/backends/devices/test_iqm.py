"""The device of kind `iqm` against a real server: the IQM API of our own service."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.devices.device import make
from qtide.backends.payloads.formats.iqm import IqmBatch
from qtide.backends.payloads.shots import Shots
from qtide.core.errors import UsageError
from qtide.service.local_service import LocalService
from tests.service.apis.environments import IQM_CLIENTS, python_with

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"
LIMIT = 300.0

DEVICES = """
[devices.star]
kind = "star"
profile = "annealer"  # 15 ms, and 0.2 ms per shot
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("server"), DEVICES) as started:
        yield started


@pytest.fixture(scope="module", params=IQM_CLIENTS)
def seen(request: pytest.FixtureRequest, server: LocalService) -> Any:
    """The outcome of the program, with a version of IQM's client."""
    python = python_with(f"iqm-client[qiskit]=={request.param}")
    token = server.folder / "token"
    token.write_text(server.token("ada") + "\n")
    run = subprocess.run(
        [python, HERE / "programs" / "upstream.py", server.url, token],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        timeout=LIMIT,
        check=True,
    )
    return json.loads(run.stdout) | {"token": token.read_text().strip()}


def test_the_server_says_what_it_has(seen: Any) -> None:
    properties = seen["properties"]
    assert properties["qubits"] == ["QB1", "QB2", "QB3", "QB4", "QB5"]
    assert sorted(map(sorted, properties["connections"])) == [
        ["QB1", "QB3"],
        ["QB2", "QB3"],
        ["QB3", "QB4"],
        ["QB3", "QB5"],
    ]
    assert {"prx", "cz", "measure", "barrier"} <= set(properties["operations"])
    assert properties["loci"]["prx"] == [[qubit] for qubit in properties["qubits"]]


def test_circuits_pass_through(seen: Any) -> None:
    (flipped,) = (Shots.from_json(form) for form in seen["flipped"])
    assert flipped.registers == (("one", 2), ("two", 1))
    assert flipped.rows("one") == [[1, 0]] * 20
    assert sorted(seen["half"]) == ["0", "1"]
    assert sum(seen["half"].values()) == 1000


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("far", ["PayloadRefused", "cz", "QB1"]),
        ("text", ["PayloadRefused: an IQM computer takes IQM's circuits, not str"]),
        ("shots", ["PayloadRefused: the iqm takes 1 to 100000 shots, not 0"]),
        ("late", ["DeviceFailed", "left a job", "for 0 s; it was cancelled"]),
        ("stranger", ["DeviceFailed: the IQM server http://127.0.0.1:"]),
        ("no token", ["UsageError: the token file /nowhere: No such file"]),
        ("nobody", ["DeviceFailed: the IQM server http://127.0.0.1:9 failed"]),
    ],
)
def test_what_goes_wrong_is_a_sentence(seen: Any, step: str, words: list[str]) -> None:
    assert all(word in seen[step] for word in words), seen[step]


def test_the_token_is_told_to_nobody(seen: Any) -> None:
    token = seen.pop("token")
    assert len(token) > 10
    assert token not in json.dumps(seen)


def test_the_package_that_is_missing_is_named() -> None:
    device = make("iqm", {"url": "http://127.0.0.1:9"})
    with pytest.raises(UsageError, match="needs the package iqm-client"):
        device.check(IqmBatch(()))
