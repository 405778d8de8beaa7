"""How a user names a device in one word."""

from __future__ import annotations

from typing import Any

import pytest

from qtide.backends.devices.device import DEVICES, LIMIT, choice
from qtide.backends.devices.profile import UNTIMED, profiles
from qtide.core.errors import UsageError

LINE = [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("words", "kind", "options", "profile", "limit"),
    [
        ("annealer", "annealer", {}, "annealer", LIMIT),
        ("neutral-atom", "annealer", {}, "neutral-atom", LIMIT),
        ("photonic,sweeps=7", "annealer", {"sweeps": 7}, "photonic", LIMIT),
        ("star", "star", {}, "superconducting", LIMIT),
        ("noisy-star:trapped-ion", "noisy-star", {}, "trapped-ion", LIMIT),
        ("star,profile=trapped-ion,noisy", "star", {"noisy": True}, "trapped-ion", LIMIT),
        ("atoms", "atoms", {}, "neutral-atom", LIMIT),
        ("gate,connections=[[0,1],[1,2]],qubits=3", "gate", {"connections": LINE}, None, LIMIT),
        ("gate,noisy=false,limit=2.5", "gate", {"noisy": False}, "superconducting", 2.5),
        ("iqm,url=http://host:1/a,token-file=/t", "iqm", {"token_file": "/t"}, "untimed", LIMIT),
    ],
)
def test_a_word_names_a_device_with_its_timing(
    words: str, kind: str, options: dict[str, Any], profile: str | None, limit: float
) -> None:
    found = choice(words)
    assert (found.kind, found.limit) == (kind, limit)
    assert options.items() <= found.options.items()
    assert found.profile.name == (profile or "superconducting")


def test_the_url_of_a_server_is_a_text() -> None:
    assert choice("iqm,url=http://host:1/a").options == {"url": "http://host:1/a"}
    assert choice("iqm,url=http://host:1/a").profile is UNTIMED


@pytest.mark.parametrize("name", sorted(profiles()))
def test_every_profile_still_is_a_qpu(name: str) -> None:
    found = choice(name)
    assert (found.kind, found.profile) == ("annealer", profiles()[name])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("abacus", r"no QPU 'abacus': name a device \(annealer, atoms, .*trapped-ion\), or a dev"),
        ("", "no QPU ''"),
        ("star-noisy", r"no QPU 'star-noisy' \(did you mean noisy-star\?\): name a device"),
        ("anealer", r"no QPU 'anealer' \(did you mean annealer\?\)"),
        ("star:fast", "no QPU profile 'fast'; there are: annealer"),
        ("photonic:annealer", "'photonic' is a timing: name a device first, as in annealer:phot"),
        ("star,qubits=3", "'star' has no option 'qubits'; it has: noisy, threads"),
        ("gate,qubits=many", "'gate' cannot have qubits = 'many'"),
        ("gate,qubits=99", "1 to 24 qubits, not 99"),
        ("gate,", r"--qpu gate, cannot be read: it has the form DEVICE\[:PROFILE\]"),
        ("gate,qubits=", "cannot be read"),
        ("star,limit=soon", "limit is a number of seconds above 0, not 'soon'"),
        ("star,limit", "limit is a number of seconds above 0, not True"),
        ("star,limit=-1", "limit is a number of seconds above 0, not -1"),
        ("iqm", "needs the option 'url'"),
    ],
)
def test_a_wrong_word_gets_a_sentence(words: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        choice(words)


def test_an_error_lists_every_device() -> None:
    with pytest.raises(UsageError) as refused:
        choice("abacus")
    assert all(name in str(refused.value) for name in DEVICES.names())
