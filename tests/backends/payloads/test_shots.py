from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.payloads.shots import Shots


@st.composite
def some_shots(draw: Any) -> Shots:
    widths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    registers = [(f"r{number}", width) for number, width in enumerate(widths)]
    values = draw(st.lists(st.integers(0, 2 ** sum(widths) - 1), max_size=30))
    return Shots.of(registers, values)


def test_bits_and_registers_are_ordered_as_qiskit_orders_them() -> None:
    shots = Shots.of([("c", 2), ("d", 3)], [0b00101, 0b00101, 0b11110])
    assert shots.counts() == {"001 01": 2, "111 10": 1}
    assert shots.rows("c") == [[1, 0], [1, 0], [0, 1]]
    assert shots.rows("d") == [[1, 0, 0], [1, 0, 0], [1, 1, 1]]


def test_counts_are_those_of_qiskit() -> None:
    from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister
    from qiskit_aer import AerSimulator

    bits = [ClassicalRegister(2, "c"), ClassicalRegister(1, "d")]
    circuit = QuantumCircuit(QuantumRegister(3), *bits)
    circuit.h(0)
    circuit.x(2)
    circuit.measure([0, 1, 2], [0, 1, 2])
    result = AerSimulator().run(circuit, shots=200, seed_simulator=5, memory=True).result()
    values = [int(word, 16) for word in result.results[0].data.memory]
    assert Shots.of([("c", 2), ("d", 1)], values).counts() == dict(result.get_counts())


@given(some_shots())
def test_nothing_is_lost_on_the_way(shots: Shots) -> None:
    assert Shots.from_json(shots.to_json()) == shots
    assert Shots.of(shots.registers, shots.values) == shots
    assert sum(shots.counts().values()) == len(shots) == len(shots.values)


@given(some_shots())
def test_rows_hold_every_bit(shots: Shots) -> None:
    columns = [shots.rows(name) for name, _ in shots.registers]
    joined = [list(chain(*rows)) for rows in zip(*columns, strict=True)]
    assert [sum(bit << at for at, bit in enumerate(row)) for row in joined] == shots.values


def test_rows_can_be_changed_one_by_one() -> None:
    rows = Shots.of([("c", 1)], [1, 1]).rows("c")
    rows[0][0] = 7
    assert rows == [[7], [1]]


@pytest.mark.parametrize(
    "form",
    [
        {"registers": [], "bits": ""},
        {"registers": [["c", 0]], "bits": ""},
        {"registers": [["c", 9]], "bits": "AA=="},
        {"registers": [["c", 1]], "bits": "Ag=="},
        {"registers": [["c", 1], ["c", 1]], "bits": "AA=="},
        {"registers": [["c", 1]], "bits": "?"},
    ],
)
def test_what_does_not_fit_is_no_shots(form: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Shots.from_json(form)
