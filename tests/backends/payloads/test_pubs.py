import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import QuantumCircuit
from qiskit.circuit import ParameterVector

from qtide.backends.payloads.formats.pubs import LENGTH, ObservableArray, Pauli, Pub, Pubs, pack
from qtide.backends.payloads.payload import (
    Encoded,
    PayloadRefused,
    circuits_in,
    decode,
    decode_answer,
    encode,
    encode_answer,
    qubits_in,
)
from qtide.backends.payloads.shots import Estimates

LABELS = st.text("IXYZ", min_size=3, max_size=3)


def rotations(parameters: int = 2) -> QuantumCircuit:
    circuit = QuantumCircuit(3)
    for number, angle in enumerate(ParameterVector("a", parameters)):
        circuit.rx(angle, number % 3)
    return circuit


def estimation(sets: int = 2, share: float = 1.0, terms: dict[str, float] | None = None) -> Pubs:
    observables = ObservableArray((), (terms or {"ZZI": 1.0, "XII": 0.5},))
    return Pubs((Pub(rotations(), np.full((sets, 2), 0.25), share, observables),))


def changed(**words: Any) -> Encoded:
    """The bytes of an estimation, with other words in the head."""
    data = pack(estimation())
    size = int.from_bytes(data[:LENGTH], "little")
    head = json.loads(data[LENGTH : LENGTH + size])
    for place, value in words.items():
        target = head if place in head else head["pubs"][0]
        target[place] = value
    text = json.dumps(head).encode()
    return Encoded("pubs", len(text).to_bytes(LENGTH, "little") + text + data[LENGTH + size :])


@settings(max_examples=30)  # each starts a reader of what is not trusted
@given(
    st.lists(st.dictionaries(LABELS, st.floats(-5, 5), min_size=1, max_size=5), min_size=1),
    st.integers(1, 5),
    st.booleans(),
)
def test_pubs_arrive_as_they_were(
    entries: list[dict[str, float]], sets: int, mitigated: bool
) -> None:
    observables = ObservableArray((len(entries), 1), tuple(entries))
    values = np.random.default_rng(1).random((sets, 2))
    sent = Pubs((Pub(rotations(), values, 0.25, observables),), mitigated)
    for trusted in (True, False):
        found = decode(encode(sent), trusted=trusted)
        [pub] = found.pubs
        assert (pub.values == values).all() and pub.share == 0.25
        assert pub.observables == observables and found.mitigated == mitigated
        assert pub.circuit == sent.pubs[0].circuit


@given(st.sets(LABELS, min_size=1, max_size=12))
def test_each_operator_is_measured_once_in_a_basis_that_measures_it(labels: set[str]) -> None:
    [pub] = estimation(terms=dict.fromkeys(labels, 1.0)).pubs
    wanted = {Pauli.of(label) for label in labels} - {Pauli(0, 0)}
    measured = [operator for setting in pub.settings for operator in setting.operators]
    assert sorted(measured) == sorted(wanted)
    for setting in pub.settings:
        for operator in setting.operators:
            on = operator.support
            assert (setting.basis.x & on, setting.basis.z & on) == (operator.x, operator.z)


def test_the_size_counts_circuits_with_the_shots_of_the_task() -> None:
    assert circuits_in(estimation(sets=10)) == 20
    assert circuits_in(estimation(sets=10, share=0.11)) == 3
    assert circuits_in(Pubs(estimation(sets=10).pubs, mitigated=True)) == 22
    assert qubits_in(estimation()) == 3


def test_estimates_arrive_as_they_were() -> None:
    sent = Estimates(np.array([[1.0, -0.5]]), np.array([[0.1, 0.2]]), 7)
    encoded = encode_answer([sent])
    [found] = decode_answer(encoded)
    assert encoded.format == "estimates"
    assert (found.evs == sent.evs).all() and (found.stds == sent.stds).all()
    assert found.circuits == 7


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"values": [2, 3]}, "the circuit has 2 parameters"),
        ({"values": [0, 2]}, "parameter sets are expected"),
        ({"values": [9, 2]}, "fewer parameter values"),
        ({"values": [1, 2]}, "more parameter values"),
        ({"values": [-1, 2]}, "an integer from 0"),
        ({"share": 0}, "above 0 and at most 1"),
        ({"share": 1.5}, "above 0 and at most 1"),
        ({"pubs": []}, "0 PUBs"),
        ({"circuits": "all"}, "an integer from 0"),
        ({"mitigated": "m3"}, "true or false"),
        ({"observables": {"shape": [3], "terms": [[["ZZI", 1]]] * 3}}, "do not fit each other"),
        ({"observables": {"shape": [2], "terms": [[["ZZI", 1]]]}}, r"for the shape \[2\]"),
        ({"observables": {"shape": [], "terms": [[["ZZQ", 1]]]}}, "letters I, X, Y and Z"),
        ({"observables": {"shape": [], "terms": [[["ZZ", 1]]]}}, "3 of the letters"),
        ({"observables": {"shape": [], "terms": [["ZZI"]]}}, "label, coefficient"),
        ({"observables": None, "mitigated": True}, "only expectation values"),
    ],
)
def test_wrong_pubs_are_refused_with_a_reason(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        decode(changed(**words))


def test_values_have_to_be_finite() -> None:
    data = pack(estimation())[:-8] + np.array([np.nan]).tobytes()
    with pytest.raises(PayloadRefused, match="not a finite number"):
        decode(Encoded("pubs", data))
