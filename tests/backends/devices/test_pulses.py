"""Pulse sequences on the neutral-atom device."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from pulser import Pulse, Register, Sequence
from pulser.devices import AnalogDevice, DigitalAnalogDevice, MockDevice

from qtide.backends.devices.atoms import Atoms
from qtide.backends.payloads.formats.pulses import PulseBatch, PulseProgram, pack
from qtide.backends.payloads.payload import Encoded, PayloadRefused, circuits_in, decode, encode

FAR = [(0.0, 0.0), (30.0, 0.0)]
NEAR = [(0.0, 0.0), (6.0, 0.0)]


def pulse(
    places: list[tuple[float, float]],
    amplitude: float | None = None,
    device: Any = DigitalAnalogDevice,
) -> Any:
    """A resonant pulse of 500 ns on all atoms; without an amplitude, that is a variable."""
    sequence = Sequence(Register.from_coordinates(places, center=False, prefix="q"), device)
    sequence.declare_channel("light", "rydberg_global")
    given = sequence.declare_variable("amplitude") if amplitude is None else amplitude
    sequence.add(Pulse.ConstantPulse(500, given, 0, 0), "light")
    return sequence


def solved(payload: Any, shots: int = 400) -> Any:
    batch = decode(encode(payload))
    device = Atoms()
    device.check(batch)
    return device.solve(batch, shots, 7)


def test_a_pi_pulse_excites_atoms_apart_and_only_one_of_two_neighbours() -> None:
    half_turn = math.pi / 0.5
    apart, together = solved([pulse(FAR, half_turn), pulse(NEAR, half_turn / math.sqrt(2))])
    assert apart.registers == (("atoms", 2),)
    assert apart.counts()["11"] > 380
    counts = together.counts()
    assert counts.get("11", 0) < 10 and counts["01"] + counts["10"] > 350


def test_the_first_atom_is_bit_0() -> None:
    sequence = Sequence(Register({"a": (0.0, 0.0), "b": (30.0, 0.0)}), DigitalAnalogDevice)
    sequence.declare_channel("one", "rydberg_local", initial_target="a")
    sequence.add(Pulse.ConstantPulse(500, math.pi / 0.5, 0, 0), "one")
    [found] = solved(sequence)
    assert found.counts().get("01", 0) > 380


def turn(channel: str, duration: int = 500, measured: str | None = None) -> Any:
    """A pulse on the first of two atoms, of half a turn if it lasts long enough for that."""
    sequence = Sequence(Register({"a": (0.0, 0.0), "b": (30.0, 0.0)}), DigitalAnalogDevice)
    sequence.declare_channel("one", channel, initial_target="a")
    if duration:
        amplitude = min(50.0, math.pi / (duration / 1000))
        sequence.add(Pulse.ConstantPulse(duration, amplitude, 0, 0), "one")
    if measured:
        sequence.measure(measured)
    return sequence


@pytest.mark.parametrize("measured", [None, "digital"])
def test_the_upper_hyperfine_state_is_a_one_of_digital_sequences(measured: str | None) -> None:
    [found] = solved(turn("raman_local", measured=measured))
    assert found.counts().get("01", 0) > 380


def test_of_a_sequence_in_both_bases_the_measured_one_is_read() -> None:
    for basis, ones in (("digital", "01"), ("ground-rydberg", "10")):
        sequence = turn("raman_local")
        sequence.declare_channel("other", "rydberg_local", initial_target="b")
        sequence.add(Pulse.ConstantPulse(500, math.pi / 0.5, 0, 0), "other")
        sequence.measure(basis)
        assert solved(sequence)[0].counts().get(ones, 0) > 380, basis


@pytest.mark.parametrize("duration", [16, 52])
def test_a_short_pulse_turns_by_its_area(duration: int) -> None:
    [found] = solved(turn("rydberg_local", duration), shots=100_000)
    chance = math.sin(50.0 * duration / 2000) ** 2
    assert found.counts()["01"] / 100_000 == pytest.approx(chance, abs=0.012)


def test_a_sequence_with_variables_runs_once_for_each_set_of_values() -> None:
    program = PulseProgram(pulse(FAR), tuple({"amplitude": each} for each in (1e-6, math.pi / 0.5)))
    assert circuits_in(PulseBatch((program,))) == 2
    none, all_ = solved(program)
    array = PulseProgram(pulse(FAR), ({"amplitude": np.array([1e-6])}, {"amplitude": np.int64(6)}))
    assert len(solved(decode(encode(array)))) == 2
    assert none.counts() == {"00": 400}
    assert all_.counts()["11"] > 380


def test_the_same_seed_gives_the_same_shots() -> None:
    first, again = (solved(pulse(NEAR, 4.0))[0] for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        (
            pulse([(0.0, 0.0), (2.0, 0.0)], 1.0, MockDevice),
            r"sequence 0: .*minimal distance .*\(4 um\)",
        ),
        (pulse(FAR, 500.0, MockDevice), "sequence 0: The pulse's amplitude .* channel.$"),
        (pulse([(8.0 * i, 0.0) for i in range(11)], 1.0, MockDevice), "11 atoms; at most 10"),
        (pulse(FAR), "sequence 0: .*amplitude"),
        (pulse(FAR, 1.0, AnalogDevice), "for the Rydberg level 60, but the machine has 70"),
        (turn("rydberg_local", 0), "sequence 0: it has no pulses"),
        (turn("rydberg_local", measured="digital"), "sequence 0: .*no pulse of it acts there"),
    ],
    ids=["close", "strong", "many", "no values", "other level", "empty", "other basis"],
)
def test_what_exceeds_the_machine_is_refused(sequence: Any, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        Atoms().check(decode(encode(sequence)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ([], "there is none"),
        ([1], "an object is expected"),
        ([{"sequence": {"version": "1"}}], "sequence 0 is not one of Pulser's"),
        ([{"sequence": {}, "values": [{"a": "x"}]}], "a finite number is expected"),
    ],
)
def test_what_is_no_sequence_is_refused(change: Any, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        decode(Encoded("pulses", json.dumps(change).encode()))
    assert decode(Encoded("pulses", pack(pulse(FAR, 1.0)))).executions == 1
