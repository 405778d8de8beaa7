from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.errors import QtideError
from qtide.slurm.commands import environment
from qtide.slurm.hostlist import expand

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,5}[a-z]", fullmatch=True)
RANGES = st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(1, 3))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("c1", ["c1"]),
        ("c[1-3,7]", ["c1", "c2", "c3", "c7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("a,b[1-2]-ib,c", ["a", "b1-ib", "b2-ib", "c"]),
        ("rack[1-2]n[3,5]", ["rack1n3", "rack1n5", "rack2n3", "rack2n5"]),
        ("", []),
        ("(null)", []),
    ],
)
def test_known_forms(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["c[1-", "c]1[", "c[1-x]", "a,,b", "c[]", ",a"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(QtideError, match="cannot be read"):
        expand(text)


@given(st.lists(st.tuples(NAMES, RANGES), min_size=1, max_size=4))
def test_ranges_expand_again(items: list[tuple[str, tuple[int, int, int]]]) -> None:
    text, names = [], []
    for name, (first, more, width) in items:
        last = first + more
        text.append(f"{name}[{first:0{width}}-{last:0{width}}]")
        names += [f"{name}{n:0{max(width, len(str(first)))}}" for n in range(first, last + 1)]
    assert expand(",".join(text)) == names


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True))
def test_plain_names_stay(names: list[str]) -> None:
    assert expand(",".join(names)) == names


def test_slurm_reads_lists_the_same_way(conf: Path) -> None:
    text = "c[1-3,7],n[08-11],rack[1-2]n[3,5],login"
    answer = subprocess.run(
        ["scontrol", "show", "hostnames", text],
        env=environment(conf),
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == expand(text)
