import json
from typing import Any

import pytest

from qtide.backends.payloads.payload import Encoded, PayloadRefused, decode

MODEL = {"vartype": "SPIN", "offset": 0, "linear": [["a", 1], [3, -2]], "quadratic": [["a", 3, 0]]}


def model(**changes: Any) -> Any:
    return decode(Encoded("bqm", json.dumps(MODEL | changes).encode()))


def test_a_model_is_easily_written_by_hand() -> None:
    assert model().linear == {"a": 1, 3: -2}
    assert model(quadratic=[]).num_interactions == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vartype": "INTEGER"}, "vartype: SPIN or BINARY, not 'INTEGER'"),
        ({"offset": "1"}, "offset: a finite number is expected, not '1'"),
        ({"offset": 10**400}, "offset: a finite number is expected"),
        ({"linear": None}, "linear terms: a list is expected, not None"),
        ({"linear": [["a", True]]}, "linear term 0: a finite number is expected, not True"),
        ({"linear": [["a", 1], ["a", 1]]}, "linear term 1: the variable 'a' has a bias already"),
        (
            {"linear": [[1.5, 1]]},
            "linear term 0: a variable is a string or an integer of 64 bits, not 1.5",
        ),
        (
            {"linear": [[True, 1]]},
            "linear term 0: a variable is a string or an integer of 64 bits, not True",
        ),
        ({"linear": [[2**63, 1]]}, "an integer of 64 bits, not 9223372036854775808"),
        ({"linear": [["a"]]}, r"linear term 0: a list of 2 is expected, not \['a'\]"),
        (
            {"linear": [[i, 0] for i in range(100_001)]},
            "there are 100001; at most 100000 are allowed",
        ),
        ({"quadratic": [["a", "a", 1]]}, "quadratic term 0: 'a' is coupled to itself"),
        ({"quadratic": [["a", "b", 1]]}, "names a variable that has no linear term"),
        ({"quadratic": [["a", 3, 1], [3, "a", 1]]}, "couple the same two variables"),
        (
            {"quadratic": [["a", [], 1]]},
            r"a variable is a string or an integer of 64 bits, not \[\]",
        ),
    ],
)
def test_a_mistake_in_a_model_is_named(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        model(**changes)


def test_a_bias_beyond_all_floats_is_refused() -> None:
    data = b'{"vartype": "SPIN", "linear": [["a", 1e999]]}'
    with pytest.raises(PayloadRefused, match="linear term 0: a finite number is expected, not inf"):
        decode(Encoded("bqm", data))
