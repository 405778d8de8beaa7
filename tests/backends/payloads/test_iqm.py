import json
from typing import Any

import pytest

from qtide.backends.payloads.formats.iqm import IqmBatch
from qtide.backends.payloads.payload import Encoded, PayloadRefused, decode

MEASURE = {"name": "measure", "locus": ["QB1"], "args": {"key": "m", "feedback_key": "f"}}
PRX = {"name": "prx", "locus": ["QB1"], "args": {"angle": 0.5, "phase": 0}}
CONDITIONAL = PRX | {
    "name": "cc_prx",
    "args": {"angle": 1, "phase": 0, "feedback_key": "f", "feedback_qubit": "QB1"},
}


def batch(*instructions: Any, **fields: Any) -> IqmBatch:
    request = {"circuits": [{"name": "c", "instructions": list(instructions)}]} | fields
    payload = decode(Encoded("iqm", json.dumps(request).encode()))
    assert isinstance(payload, IqmBatch)
    return payload


def test_a_whole_run_request_can_be_handed_in() -> None:
    made = batch(PRX, MEASURE, CONDITIONAL, shots=100, heralding_mode="none")
    assert [one.name for one in made.circuits[0].instructions] == ["prx", "measure", "cc_prx"]
    assert made.qubit_mapping is None


def test_older_clients_call_the_locus_qubits() -> None:
    older = {"name": "cz", "qubits": ["QB1", "QB2"], "args": {}}
    assert batch(older).circuits[0].instructions[0].locus == ("QB1", "QB2")


def test_a_mapping_of_qubits_comes_in_two_forms() -> None:
    pairs = [{"logical_name": "a", "physical_name": "QB1"}]
    assert batch(qubit_mapping=pairs) == batch(qubit_mapping={"a": "QB1"})


@pytest.mark.parametrize(
    ("instruction", "sentence"),
    [
        ({"name": "rz", "locus": ["QB1"]}, "there is no operation 'rz'"),
        ({"name": ["prx"]}, "name: a string of at most 1000 characters is expected"),
        ("prx", "an object is expected, not 'prx'"),
        (PRX | {"locus": ["QB1", "QB2"]}, "prx takes 1 qubits, not 2"),
        (PRX | {"locus": []}, "prx takes 1 qubits, not 0"),
        (PRX | {"locus": [7]}, "locus: a string of at most 1000 characters is expected, not 7"),
        (PRX | {"locus": None}, "locus: a list is expected, not None"),
        ({"name": "barrier", "locus": []}, "barrier takes some qubits, not 0"),
        ({"name": "cz", "locus": ["QB1", "QB1"]}, "cz names a qubit twice"),
        ({"name": "cz", "locus": ["QB1", "QB2"], "args": {"x": 1}}, "cz takes no argument 'x'"),
        (PRX | {"args": {"angle": 1}}, "prx needs the argument 'phase'"),
        (PRX | {"args": {"angle": "1", "phase": 0}}, "angle: a finite number is expected"),
        (PRX | {"args": []}, r"args: an object is expected, not \[\]"),
        (PRX | {"implementation": 1}, "a string of at most 1000 characters is expected, not 1"),
        (MEASURE | {"args": {"key": "m"}}, "the measurement key 'm' is used already"),
        (MEASURE | {"args": {"key": "n", "feedback_key": "f"}}, "the feedback key 'f' is used"),
        (
            CONDITIONAL | {"args": CONDITIONAL["args"] | {"feedback_qubit": "QB2"}},  # type: ignore[operator]
            "no earlier measurement gave 'f' on 'QB2'",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(instruction: Any, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=rf"^circuit 0, instruction 2.*{sentence}"):
        batch(PRX, MEASURE, instruction)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"circuits": []}, "there is no circuit in it"),
        ({"circuits": None}, "a list is expected, not None"),
        ({"circuits": [{}] * 10_001}, "there are 10001; at most 10000 are allowed"),
        ({"circuits": [{"instructions": [PRX] * 100_001}]}, "100001; at most 100000 are"),
        ({"circuits": [{"instructions": [], "metadata": 1}]}, "circuit 0, metadata: an object"),
        ({"circuits": ["qir"]}, "circuit 0: an object is expected, not 'qir'"),
        ({"qubit_mapping": {"a": "QB1", "b": "QB1"}}, "two qubits are mapped to the same one"),
        ({"qubit_mapping": [{"logical_name": "a"}]}, "qubit_mapping: a string"),
        ({"qubit_mapping": 7}, "qubit_mapping: an object is expected, not 7"),
    ],
)
def test_a_mistake_in_the_request_is_named(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        batch(PRX, **fields)


def test_an_angle_beyond_all_floats_is_refused() -> None:
    data = b'{"circuits": [{"instructions": [{"name": "prx", "locus": ["QB1"], '
    data += b'"args": {"angle": 1e999, "phase": 0}}]}]}'
    with pytest.raises(PayloadRefused, match=r"instruction 0, angle: .*, not inf"):
        decode(Encoded("iqm", data))
