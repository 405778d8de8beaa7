"""A neutral-atom device emulated by Pulser; it runs pulse sequences, and finds independent sets.

It takes sequences with registers and pulses as they are, within the limits of the machine. In a
binary quadratic model, each variable is an atom; coupled atoms are so close together that they
cannot both be excited. After a slow laser sweep, the excited atoms form a heavy independent set, a
good solution of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from qtide.backends.devices.annealer import best_first, check_model
from qtide.backends.devices.device import Device
from qtide.backends.devices.profile import Cost
from qtide.backends.payloads.formats.pulses import PulseBatch
from qtide.backends.payloads.guard import plain_message
from qtide.backends.payloads.payload import PayloadRefused
from qtide.backends.payloads.shots import Shots

Edges = frozenset[tuple[int, int]]
Points = tuple[tuple[float, float], ...]

MOST_ATOMS = 10
"""QuTiP takes 0.3 s for ten atoms but 14 s for twelve."""

MOST_RUNS = 1_000
"""The most runs of sequences in one task."""

BASE_S, STATE_S = 0.2, 3e-4
"""Seconds that QuTiP takes per sweep and per amplitude of the state."""

SWEEP_NS = 3_000
DETUNING = 12.0
"""Detuning of the heaviest atom at the end of the sweep, in rad/µs."""

AMPLITUDE = 8.0
"""Amplitude in the middle of the sweep, in rad/µs."""

EXCITED = {"ground-rydberg": "r", "digital": "h"}
"""The state that each measurement reads as one; without one, the Rydberg state, if it is used."""

NO_LIGHT = 1e-9
"""Amplitude at both ends of the sweep: interpolated waveforms cannot be zero there."""


class Atoms(Device):
    """Takes a `dimod.BinaryQuadraticModel` and returns a `dimod.SampleSet`, best first.

    It also takes a `PulseBatch`, and returns one `Shots` per run; bit 0 is the first atom.
    """

    name = "atoms"
    usual_profile = "neutral-atom"
    extra = "atoms"

    def properties(self) -> dict[str, Any]:
        """Formats and limits."""
        most = {"shots": self.most_shots, "variables": MOST_ATOMS, "executions": MOST_RUNS}
        return {"formats": ["bqm", "pulses", "burst"], "most": most}

    def cost(self, payload: Any) -> Cost:
        """Emulator time; the state doubles with each atom."""
        if isinstance(payload, PulseBatch):
            atoms = [
                len(one.sequence.register.qubits) for one in payload.programs for _ in one.values
            ]
            return Cost(sum(BASE_S + STATE_S * 2**each for each in atoms))
        return Cost(BASE_S + STATE_S * 2**payload.num_variables)

    def warm_up(self) -> None:
        """Import Pulser and QuTiP, which takes seconds."""
        import pulser_simulation  # noqa: F401 - only to import it

    def _check(self, payload: Any) -> None:
        if isinstance(payload, PulseBatch):
            if not 0 < payload.executions <= MOST_RUNS:
                raise PayloadRefused(
                    f"the atoms take 1 to {MOST_RUNS} runs of sequences, not {payload.executions}"
                )
            for _ in _built(payload):
                pass  # building it on the machine checks its limits
            return
        check_model(payload, self.name, MOST_ATOMS)
        if payload.num_variables == 0:
            raise PayloadRefused("the atoms were given a model without variables")
        _places(*_graph(payload))

    def _solve(self, payload: Any, shots: int, seed: int) -> Any:
        import dimod
        import numpy as np

        if isinstance(payload, PulseBatch):
            draw = np.random.default_rng(seed)
            return [_sample(sequence, shots, draw) for sequence in _built(payload)]
        weights, edges = _graph(payload)
        chances = _sweep(*_places(weights, edges), weights)
        often = np.random.default_rng(seed).multinomial(shots, list(chances.values()))
        seen = [(bits, n) for bits, n in zip(chances, often, strict=True) if n]
        model = payload.change_vartype("BINARY", inplace=False)
        found = dimod.SampleSet.from_samples_bqm(
            (np.array([[int(bit) for bit in bits] for bits, _ in seen]), list(model.variables)),
            model,
            num_occurrences=[n for _, n in seen],
        )
        return best_first(found.change_vartype(payload.vartype))


def _built(batch: PulseBatch) -> Iterator[Any]:
    """Each run's sequence on this machine; raises PayloadRefused if it exceeds its limits."""
    from pulser.devices import DigitalAnalogDevice

    for number, program in enumerate(batch.programs):
        where = f"sequence {number}"
        sequence = program.sequence
        if sequence.is_register_mappable():
            raise PayloadRefused(f"{where}: its register has to be a definite one")
        atoms = len(sequence.register.qubits)
        if atoms > MOST_ATOMS:
            raise PayloadRefused(f"{where}: it has {atoms} atoms; at most {MOST_ATOMS} fit")
        theirs, ours = sequence.device.rydberg_level, DigitalAnalogDevice.rydberg_level
        if theirs != ours:  # the atoms would interact otherwise than its author meant
            raise PayloadRefused(
                f"{where}: it is for the Rydberg level {theirs}, but the machine has {ours}; build "
                "it for pulser.devices.DigitalAnalogDevice"
            )
        try:
            if sequence.device != DigitalAnalogDevice:
                sequence = sequence.with_new_device(DigitalAnalogDevice)
            for values in program.values:
                built = sequence.build(**values) if sequence.is_parametrized() else sequence
                _check_measurement(built)
                yield built
        except Exception as error:
            text = f"{error} {error.__cause__ or ''}"
            words = text.rpartition("),): ")[2]  # Pulser lists an error for each channel
            words = re.sub(r"""^(["'])(.*)\1} *$""", r"\2", words)
            raise PayloadRefused(f"{where}: {plain_message(ValueError(words))}") from None


def _check_measurement(sequence: Any) -> None:
    """Refuse a sequence in which nothing happens, or nothing that its measurement would see."""
    if not sequence.get_duration():
        raise ValueError("it has no pulses")
    used = sequence.get_addressed_bases()
    if sequence.is_measured() and sequence.get_measurement_basis() not in used:
        measured = sequence.get_measurement_basis()
        raise ValueError(f"it is measured in the basis {measured}, and no pulse of it acts there")


def _sample(sequence: Any, shots: int, draw: Any) -> Shots:
    """The shots of a sequence, in random order."""
    import numpy as np

    chances = _final(sequence)
    odds = np.array(list(chances.values()))
    states = [int(bits[::-1], 2) for bits in chances]
    values = draw.choice(states, size=shots, p=odds / odds.sum())
    return Shots.of([("atoms", len(sequence.register.qubits))], values.tolist())


def _graph(model: Any) -> tuple[list[float], Edges]:
    """The weights of the variables, scaled to a maximum of 1, and the coupled pairs."""
    binary = model.change_vartype("BINARY", inplace=False)
    weights = [-bias for bias in binary.linear.values()]
    couplings = {pair: bias for pair, bias in binary.quadratic.items() if bias}
    _check_form(weights, list(couplings.values()))
    number = {variable: i for i, variable in enumerate(binary.variables)}
    pairs = (sorted((number[first], number[second])) for first, second in couplings)
    return [weight / max(weights) for weight in weights], frozenset((a, b) for a, b in pairs)


def _check_form(weights: list[float], couplings: list[float]) -> None:
    """Refuse what atoms cannot represent: they allow weights, but one coupling strength only."""
    if min(weights) <= 0:
        raise PayloadRefused("the atoms take models in which every linear bias (0/1) is negative")
    if couplings and max(couplings) - min(couplings) > 1e-9 * abs(max(couplings)):
        raise PayloadRefused("the atoms take models whose couplings are all equal")
    if couplings and min(couplings) < max(weights):
        raise PayloadRefused(
            "the atoms take couplings that outweigh every linear bias: coupled atoms are exclusive"
        )


def _places(weights: list[float], edges: Edges) -> tuple[Points, float]:
    found = layout(len(weights), edges)
    if found is None:
        raise PayloadRefused(
            "no places were found for the atoms that keep coupled ones close and all others apart:"
            " the couplings have to form a unit-disk graph"
        )
    return found


def _sweep(places: Points, margin: float, weights: list[float]) -> dict[str, float]:
    """The probability of each bit string at the end of the sweep."""
    from pulser import InterpolatedWaveform, Pulse, Register, Sequence
    from pulser.devices import DigitalAnalogDevice

    blockade = (DigitalAnalogDevice.interaction_coeff / DETUNING) ** (1 / 6)
    longest = blockade / margin**0.5
    atoms = {str(i): (x * longest, y * longest) for i, (x, y) in enumerate(places)}
    sequence = Sequence(Register(atoms), DigitalAnalogDevice)
    sequence.declare_channel("light", "rydberg_global")
    rise = InterpolatedWaveform(SWEEP_NS, [NO_LIGHT, AMPLITUDE, NO_LIGHT])
    sweep = InterpolatedWaveform(SWEEP_NS, [-DETUNING, 0, DETUNING])
    if min(weights) < 1:
        lighter = {str(i): 1 - weight for i, weight in enumerate(weights)}
        sequence.config_detuning_map(sequence.register.define_detuning_map(lighter), "dmm_0")
        sequence.add_dmm_detuning(InterpolatedWaveform(SWEEP_NS, [0, 0, -DETUNING]), "dmm_0")
    sequence.add(Pulse(rise, sweep, 0), "light", protocol="no-delay")
    return _final(sequence)


def _final(sequence: Any) -> dict[str, float]:
    """The probability of each bit string, as measured at the end."""
    from pulser.backend.default_observables import StateResult
    from pulser_simulation import QutipBackendV2, QutipConfig

    config = QutipConfig(observables=[StateResult(evaluation_times=[1.0])])
    state = QutipBackendV2(sequence, config=config).run().state[-1]
    excited = "r" if "r" in state.eigenstates else "h"
    if sequence.is_measured():
        excited = EXCITED[sequence.get_measurement_basis()]
    chances = state.bitstring_probabilities(one_state=excited)
    total = sum(chances.values())
    return {bits: float(chance / total) for bits, chance in sorted(chances.items())}


STARTS = 32
"""The number of random layouts from which the search starts."""

STEPS = 600
"""The number of small steps that improve each layout."""

FAR = 1.6
"""The target length of non-edges, relative to the longest edge."""

NEAREST = 0.6
"""The minimum distance of two atoms, relative to the longest edge: traps have a size."""

MARGIN = 1.3
"""The minimum ratio of shortest non-edge to longest edge: their interactions differ fivefold."""


@lru_cache(maxsize=128)
def layout(atoms: int, edges: Edges) -> tuple[Points, float] | None:
    """Find positions, in units of the longest edge, and their margin; None if there are none."""
    import numpy as np

    adjacent = np.zeros((atoms, atoms), dtype=bool)
    for first, second in edges:
        adjacent[first, second] = adjacent[second, first] = True
    # random layouts, as wide in each direction as a square grid of the atoms
    starts = np.random.default_rng(0).normal(0, atoms**0.5, (STARTS, atoms, 2))
    drawings = _relaxed(starts, adjacent)
    longest, apart, nearest = _distances(drawings, adjacent)
    margins = np.where(nearest >= NEAREST * longest, apart / longest, 0.0)
    best = int(margins.argmax())
    if margins[best] < MARGIN:
        return None
    points = drawings[best] / longest[best]
    points -= (points.min(axis=0) + points.max(axis=0)) / 2
    return tuple((float(x), float(y)) for x, y in points), min(float(margins[best]), FAR)


def _relaxed(points: Any, adjacent: Any) -> Any:
    """Improve the layouts by many small steps; at first, atoms may pass through each other."""
    import numpy as np

    least = np.where(adjacent, NEAREST * 1.1, FAR)
    most = np.where(adjacent, 1.0, np.inf)
    for step in range(STEPS):
        firmness = min(1.0, 2 * step / STEPS)
        between = points[:, :, None] - points[:, None]
        length = np.sqrt((between**2).sum(axis=-1)) + 1e-9
        push = firmness * np.maximum(0, least - length) - np.maximum(0, length - most)
        np.einsum("sii->si", push)[:] = 0
        points = points + 0.2 * (between * (push / length)[..., None]).sum(axis=2)
    return points


def _distances(drawings: Any, adjacent: Any) -> tuple[Any, Any, Any]:
    """For each layout, its longest edge, shortest non-edge and shortest distance."""
    import numpy as np

    between = drawings[:, :, None] - drawings[:, None]
    length = np.sqrt((between**2).sum(axis=-1))
    np.einsum("sii->si", length)[:] = np.inf
    longest = np.where(adjacent, length, 0).max(axis=(1, 2))
    apart = np.where(adjacent, np.inf, length).min(axis=(1, 2))
    longest = np.where(longest > 0, longest, 1.0)
    return longest, apart, length.min(axis=(1, 2))
