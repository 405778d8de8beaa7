import json
from typing import Any

import pytest

from qtide.backends.devices.device import make
from qtide.backends.payloads.payload import Burst, PayloadRefused
from qtide.core.errors import UsageError

EMULATED = ["annealer", "atoms", "burst", "gate", "grid", "noisy-star", "star"]


@pytest.mark.parametrize("kind", EMULATED)
def test_every_device_answers_bursts(kind: str) -> None:
    device = make(kind, {})
    device.warm_up()
    device.check(Burst(1, "answer"))
    assert device.solve(Burst(1, "answer"), shots=10, seed=0) == "answer"


@pytest.mark.parametrize("kind", EMULATED)
def test_every_device_says_what_it_takes(kind: str) -> None:
    properties = make(kind, {}).properties()
    assert json.loads(json.dumps(properties)) == properties
    assert "burst" in properties["formats"]
    assert all(limit > 0 for limit in properties["most"].values())


@pytest.mark.parametrize("kind", EMULATED)
def test_every_device_refuses_what_is_no_payload(kind: str) -> None:
    with pytest.raises(PayloadRefused, match="not dict"):
        make(kind, {}).check({})


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("abacus", {}, "no kind of device 'abacus'; there are: annealer, atoms, burst"),
        ("star", {"qubits": 5}, "'star' has no option 'qubits'; it has: noisy, threads"),
        ("burst", {"noisy": True}, "'burst' has no option 'noisy'; it has: none"),
        ("star", {"noisy": "yes"}, "cannot have noisy = 'yes'"),
        ("gate", {"qubits": True}, "cannot have qubits = True"),
        ("gate", {"qubits": 25}, "an ideal gate device has 1 to 24 qubits, not 25"),
        ("gate", {"qubits": 11, "noisy": True}, "a noisy gate device has 1 to 10 qubits, not 11"),
        ("gate", {"connections": [[0, 9]]}, r"a pair of the qubits 0 to 4, not \[0, 9\]"),
        ("gate", {"connections": [[1, 1]]}, r"a pair of the qubits 0 to 4, not \[1, 1\]"),
        ("gate", {"connections": ["ab"]}, "a pair of the qubits 0 to 4, not 'ab'"),
        ("grid", {"rows": 0}, "a grid has 2 to 100 qubits, not 0 times 5"),
        ("grid", {"noise": 30.0}, "the noise is above 0 and below 29"),
        ("grid", {"crosstalk": -1.0}, "the crosstalk is 0 or more"),
        ("iqm", {}, "needs the option 'url'"),
    ],
)
def test_what_does_not_exist_is_named(kind: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make(kind, options)
