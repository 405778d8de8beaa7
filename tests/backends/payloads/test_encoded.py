import subprocess
import sys
from typing import Any

import dimod
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qiskit import QuantumCircuit

from qtide.backends.payloads.guard import MOST_BYTES
from qtide.backends.payloads.payload import (
    AnswerUnreadable,
    Burst,
    Encoded,
    PayloadRefused,
    decode,
    decode_answer,
    encode,
    encode_answer,
    is_circuits,
    is_duration,
    stated_seconds,
)
from qtide.backends.payloads.shots import Shots
from tests.backends.payloads.payloads import bursts, iqm_batches, json_values, models

SAMPLES = dimod.SampleSet.from_samples(
    [{"a": 0, 5: 1}, {"a": 1, 5: 1}], "BINARY", energy=[-1.5, 2], num_occurrences=[3, 1]
)
SHOTS = [Shots.of([("c", 2)], [1, 2, 3]), Shots.of([("d", 9)], [300])]


@given(bursts | models() | iqm_batches)
def test_what_is_unpacked_is_what_was_packed(payload: Any) -> None:
    assert decode(encode(payload)) == payload


@given(json_values)
def test_answers_of_bursts_arrive_as_they_were(value: Any) -> None:
    assert decode_answer(encode_answer(value)) == value


@pytest.mark.parametrize("answer", [SAMPLES, SHOTS], ids=["samples", "shots"])
def test_answers_of_devices_arrive_as_they_were(answer: Any) -> None:
    encoded = encode_answer(answer)
    assert encoded.format == ("shots" if answer is SHOTS else "samples")
    assert decode_answer(encoded) == answer


@given(
    st.sampled_from(["burst", "bqm", "iqm", "qpy", "pubs", "pulses", "qasm2", "qasm3", "xml"]),
    st.binary(max_size=200),
)
def test_no_bytes_whatever_do_more_than_be_refused(form: str, data: bytes) -> None:
    with pytest.raises(PayloadRefused, match=r"\w"):
        decode(Encoded(form, data))


@given(st.sampled_from(["burst", "bqm", "iqm"]), json_values)
def test_no_json_whatever_does_more_than_be_refused(form: str, value: Any) -> None:
    try:
        decode(Encoded(form, encode_answer(value).data))
    except PayloadRefused as refusal:
        assert len(str(refusal)) < 400
    else:
        assert isinstance(value, dict)


@given(st.sampled_from(["estimates", "samples", "shots", "value", "xml"]), st.binary(max_size=100))
def test_no_answer_whatever_does_more_than_be_unreadable(form: str, data: bytes) -> None:
    try:
        answer = decode_answer(Encoded(form, data))
    except AnswerUnreadable as refusal:
        assert str(refusal)
    else:
        assert form == "value" or answer == []


@pytest.mark.parametrize("form", ["burst", "bqm", "iqm", "qasm2", "qasm3"])
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"[" * 1_000_000, "is not valid JSON: it is nested too deeply"),
        (b"9" * 10_000, "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b'{"answer": NaN}', "NaN is not a finite number"),
        (b" " * (MOST_BYTES + 1), "has 16777217 bytes; at most 16777216 are"),
    ],
    ids=["deep", "digits", "coding", "NaN", "long"],
)
def test_hostile_json_is_refused(form: str, data: bytes, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        decode(Encoded(form, data))


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (Burst(answer=(1, 2)), "JSON would change the burst"),
        (Burst(answer={1, 2}), "the burst cannot be written as JSON"),
        (Burst(answer=float("nan")), "the burst cannot be written as JSON"),
        (dimod.BQM({(0, 1): 1.0}, {}, "SPIN"), r"a string or an integer of 64 bits, not \(0, 1\)"),
        (dimod.BQM({"a": float("inf")}, {}, "SPIN"), "the model cannot be written as JSON"),
        ([QuantumCircuit(1), "x"], "circuit 1: a QuantumCircuit is expected, not str"),
        (["OPENQASM 3.0;", 7], "circuit 1: a text is expected, not 7"),
        (3.5, "no format for a payload of type float"),
        ([], "no format for a payload of an empty list"),
    ],
)
def test_what_cannot_travel_is_not_packed(payload: Any, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        encode(payload)


def test_each_format_says_what_it_is() -> None:
    names = ["bqm", "burst", "iqm", "pubs", "qasm2", "qasm3", "qpy", "of-nobody"]
    assert [name for name in names if is_circuits(name)] == ["iqm", "pubs", "qasm2", "qasm3", "qpy"]
    assert [name for name in names if is_duration(name)] == ["burst"]


def test_a_duration_says_its_seconds_and_nothing_else_does() -> None:
    assert stated_seconds(encode(Burst(2.5))) == 2.5
    assert stated_seconds(encode(Burst())) is None
    assert stated_seconds(encode("OPENQASM 3.0;")) is None
    with pytest.raises(PayloadRefused, match="they cannot be negative"):
        stated_seconds(Encoded("burst", b'{"seconds": -1}'))


def test_no_sdk_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from qtide.backends.payloads.payload import *\n"
        "from qtide.backends.payloads.payload import Burst\n"
        "from qtide.backends.devices.device import make\n"
        "for kind in ('star', 'gate', 'annealer', 'burst', 'atoms'):\n"
        "    make(kind, {}).properties()\n"
        "decode(encode(Burst(3)))\n"
        "heavy = {'numpy', 'dimod', 'qiskit', 'qiskit_aer', 'pulser', 'iqm'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
