"""QPY and OpenQASM: formats with readers by others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import QuantumCircuit

from qtide.backends.payloads import guard
from qtide.backends.payloads.payload import Encoded, PayloadRefused, decode, encode
from tests.backends.payloads.payloads import circuits

BELL = QuantumCircuit(2, 2)
BELL.h(0)
BELL.cx(0, 1)
BELL.measure([0, 1], [0, 1])
PACKED = encode([BELL]).data
FEW = settings(max_examples=40)  # each forks a process


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Readers may take their time here: the limit protects a service, not a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "READING_SECONDS", 300.0)
        yield


@FEW
@given(st.lists(circuits(), min_size=1, max_size=3))
def test_circuits_arrive_as_they_were(batch: list[QuantumCircuit]) -> None:
    encoded = encode(batch)
    assert encoded.format == "qpy"
    assert decode(encoded) == decode(encoded, trusted=True) == batch


@FEW
@given(st.integers(0, len(PACKED) - 1), st.binary(min_size=1, max_size=8))
def test_changed_bytes_give_circuits_or_a_refusal(place: int, change: bytes) -> None:
    data = PACKED[:place] + change + PACKED[place + len(change) :]
    try:
        batch = decode(Encoded("qpy", data))
    except PayloadRefused as refusal:
        assert str(refusal).isprintable()
    else:
        assert all(isinstance(one, QuantumCircuit) for one in batch)


def test_a_reader_that_believes_in_four_gigabytes_dies_alone() -> None:
    sentences = []
    for place in range(0, len(PACKED) - 4, 3):  # every byte is among them
        data = PACKED[:place] + b"\xff\xff\xff\xff" + PACKED[place + 4 :]
        try:
            decode(Encoded("qpy", data))
        except PayloadRefused as refusal:
            sentences.append(str(refusal))
    assert "the QPY file cannot be read: it claims more than memory holds" in sentences


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"QISKIT", "does not begin like one"),
        (b"QISKIT\x09" + PACKED[7:], "version 9; the oldest accepted is 13"),
        (PACKED[:-9], "the QPY file cannot be read"),
        (encode([QuantumCircuit(1001)]).data, "circuit 0 has 1001 qubits; at most 1000 are"),
        (encode([BELL] * 10_001).data, "there are 10001 circuits; 1 to 10000"),
    ],
    ids=["short", "old", "cut", "wide", "many"],
)
def test_bad_qpy_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        decode(Encoded("qpy", data))


def test_openqasm_becomes_circuits() -> None:
    text = 'OPENQASM 3.0; include "stdgates.inc"; qubit[2] q; bit[2] c; h q[0]; c = measure q;'
    (circuit,) = decode(encode(text))
    assert dict(circuit.count_ops()) == {"h": 1, "measure": 2}
    assert encode([circuit]).format == "qpy"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("h q;", "circuit 1 is not valid OpenQASM 3: .*'h' is not defined"),
        ("qubit q", "circuit 1 is not valid OpenQASM 3: it ends in line 1, column"),
        ("(" * 5000, "circuit 1 is not valid OpenQASM 3: maximum recursion depth"),
        ("qubit[2000] q;", "circuit 1 has 2000 qubits; at most 1000 are"),
    ],
    ids=["unknown", "cut", "deep", "wide"],
)
def test_bad_openqasm_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        decode(encode(["OPENQASM 3.0;", f"OPENQASM 3.0; {text}"]))


@pytest.mark.parametrize("comment", ["", "// a comment\n\n  ", "\n"])
def test_openqasm_2_is_told_by_its_version(comment: str) -> None:
    text = f'{comment}OPENQASM 2.0; include "qelib1.inc"; qreg q[2]; creg c[2]; h q[0];'
    encoded = encode([text + "if (c == 1) cx q[0], q[1]; measure q -> c;"])
    assert encoded.format == "qasm2"
    (circuit,) = decode(encoded)
    assert dict(circuit.count_ops()) == {"h": 1, "if_else": 1, "measure": 2}
    assert encode("qubit q; // OPENQASM 2.0;").format == "qasm3"


def test_openqasm_2_includes_no_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.inc"
    secret.write_text("gate secret a { }")
    for name in (str(secret), "/etc/passwd", "missing.inc"):
        with pytest.raises(
            PayloadRefused, match=r"circuit 0 is not valid OpenQASM 2: .*unable to find"
        ):
            decode(encode(f'OPENQASM 2.0; include "{name}"; qreg q[1]; secret q[0];'))


def test_a_reader_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "READING_SECONDS", 0.1)

    def read(data: bytes) -> Any:
        while True:
            data += b" "

    with pytest.raises(PayloadRefused, match=r"reading the book took more than 0\.1 s"):
        guard.guarded(read, b"", "the book")


def test_a_reader_that_wants_all_memory_is_stopped() -> None:
    def read(data: bytes) -> bytes:
        return data * 2**33

    with pytest.raises(PayloadRefused, match="the book cannot be read: MemoryError"):
        guard.guarded(read, b"x", "the book")
