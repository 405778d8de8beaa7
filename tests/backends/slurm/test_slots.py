from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.clusters.slurm.licences import slots_held

NONE = ("", "(null)", "N/A", "none")
WORDS = st.sampled_from(["matlab", "qpus", "gpu", "my-qpu", "qpu_old"])


@pytest.mark.parametrize(
    ("licences", "number"),
    [
        ("qpu", 1),
        ("qpu:1", 1),
        ("qpu:3", 3),
        ("qpu=2", 2),
        ("qpu@dbd:2", 2),
        ("matlab:4,qpu:2", 2),
        ("matlab:4", 0),
        ("qpu:0", 0),
        ("qpu:x", 0),
        ("qpu:1|matlab:1", 0),
        *((nothing, 0) for nothing in NONE),
    ],
)
def test_licences(licences: str, number: int) -> None:
    assert slots_held(licences, "N/A", 1) == number


@pytest.mark.parametrize(
    ("gres", "number"),
    [
        ("gres:qpu:1", 1),  # 22.05
        ("gres/qpu:1", 1),  # 23.11
        ("gres/qpu=1", 1),  # as a trackable resource
        ("qpu:2", 2),
        ("gres:qpu", 1),
        ("gres:qpu:star:2", 2),
        ("gres/qpu:star5", 1),
        ("gres/qpu:star=2", 2),
        ("gres:gpu:a100:4,gres:qpu:1", 1),
        ("gres:qpu,gres:qpu:1", 2),
        ("gres:gpu:qpu:4", 0),
        ("gres:qpu:0", 0),
        ("license/qpu=1", 0),
        *((nothing, 0) for nothing in NONE),
    ],
)
def test_generic_resources(gres: str, number: int) -> None:
    assert slots_held("(null)", gres, 1) == number
    assert slots_held("(null)", gres, 3) == 3 * number


def test_what_is_asked_for_in_both_ways_is_one_slot() -> None:
    assert slots_held("qpu:1", "gres:qpu:1", 1) == 1
    assert slots_held("qpu:2", "gres:qpu:1", 1) == 2


def test_a_site_may_name_licences_after_devices() -> None:
    assert slots_held("star:1,tree:2,qpu:4", "N/A", 1, {"star", "tree"}) == 3


@given(others=st.lists(st.tuples(WORDS, st.integers(0, 99))))
def test_what_others_are_called_is_no_slot(others: list[tuple[str, int]]) -> None:
    licences = ",".join(f"{name}:{number}" for name, number in others)
    gres = ",".join(f"gres:{name}:{number}" for name, number in others)
    assert slots_held(licences, gres, 2) == 0
    assert slots_held(f"{licences},qpu:1", gres, 2) == 1


@given(text=st.text().filter(lambda text: "qpu" not in text))
def test_text_that_names_no_slot_counts_as_none(text: str) -> None:
    assert slots_held(text, text, 1) == 0
    assert slots_held(f"qpu:2,{text}", f"{text},gres:qpu:1", 1) == 2
    assert slots_held(text, f"{text},gres:qpu:1", 3) == 3
