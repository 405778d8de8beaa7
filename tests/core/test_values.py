from pathlib import Path
from typing import Any

import dimod
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.values import LARGE, Packed, Unstorable, Values

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(plain)
def test_plain_values_come_back(value: Any) -> None:
    values = Values(Path("nowhere"))
    entry = values.pack(value).as_json()
    assert values.unpack(Packed.from_json(entry)) == value


@pytest.mark.parametrize("size", [10, LARGE])
def test_arrays_come_back_writable(tmp_path: Path, size: int) -> None:
    values = Values(tmp_path)
    array = np.arange(size, dtype=float)
    copy = values.unpack(values.pack({"a": array}))["a"]
    copy[0] = 7
    assert array[0] == 0
    assert (copy[1:] == array[1:]).all()


def test_large_arrays_lie_in_one_file_each(tmp_path: Path) -> None:
    values = Values(tmp_path)
    array = np.arange(LARGE, dtype=float)
    first, second = values.pack([array, 1]), values.pack([2, array])
    assert first.buffers == second.buffers
    assert len(first.data) < 1000
    assert [each.name for each in tmp_path.iterdir()] == list(first.buffers)


def test_a_large_plain_value_lies_in_a_file(tmp_path: Path) -> None:
    values = Values(tmp_path)
    text = "x" * (2 * LARGE)
    packed = values.pack(text)
    assert packed.file
    assert values.unpack(Packed.from_json(packed.as_json())) == text


def test_a_closure_goes_by_value() -> None:
    values, number = Values(Path("nowhere")), 3
    assert values.unpack(values.pack(lambda x: x + number, by_value=True))(4) == 7


def test_a_model_goes_along_with_code() -> None:
    """dimod's models are rebuilt by a compiled method, which has no code."""
    values, model = Values(Path("nowhere")), dimod.BinaryQuadraticModel({"a": 1.0}, {}, 0, "SPIN")
    function, found = values.unpack(values.pack((lambda each: each.num_variables, model)))
    assert (function(found), found) == (1, model)


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(Unstorable, match="generator object"):
        Values(Path("nowhere")).pack(each for each in [1])
