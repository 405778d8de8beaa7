import json

from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.payloads.payload import ANSWERS
from qtide.backends.payloads.shots import Shots
from qtide.service.apis.iqm_bodies import write_counts, write_measurements


@st.composite
def some_shots(draw: st.DrawFn) -> Shots:
    widths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    keys = draw(st.lists(st.text(), min_size=len(widths), max_size=len(widths), unique=True))
    values = draw(st.lists(st.integers(0, 2 ** sum(widths) - 1), max_size=20))
    return Shots.of(zip(keys, widths, strict=True), values)


def packed(answers: list[Shots]) -> bytes:
    return ANSWERS.load("shots").pack(answers)


@given(st.lists(some_shots(), max_size=3))
def test_every_key_has_one_row_per_shot(answers: list[Shots]) -> None:
    expected = [{key: shots.rows(key) for key, _ in shots.registers} for shots in answers]
    assert json.loads(b"".join(write_measurements(packed(answers)))) == expected


@given(some_shots())
def test_counts_have_the_bits_of_all_keys_in_order(shots: Shots) -> None:
    [said] = json.loads(b"".join(write_counts(packed([shots]))))
    columns = [shots.rows(key) for key, _ in shots.registers]
    rows = ["".join(str(bit) for row in rows for bit in row) for rows in zip(*columns, strict=True)]
    assert said["measurement_keys"] == [key for key, _ in shots.registers]
    assert said["counts"] == {row: rows.count(row) for row in rows}
