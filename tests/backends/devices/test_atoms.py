from itertools import combinations
from typing import Any

import dimod
import pytest

from qtide.backends.devices.atoms import FAR, Atoms, layout
from qtide.backends.payloads.payload import PayloadRefused, encode_answer

Edge = tuple[int, int]


def ring(size: int) -> list[Edge]:
    return [(i, (i + 1) % size) for i in range(size)]


LADDER = [(i, i + 1) for i in (0, 1, 3, 4)] + [(i, i + 3) for i in range(3)]
STAR = [(0, i) for i in range(1, 5)]
TRIANGLES = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4)]


def independent(edges: list[Edge], weights: list[float]) -> dimod.BinaryQuadraticModel:
    linear = {f"v{i}": -weight for i, weight in enumerate(weights)}
    quadratic = {(f"v{a}", f"v{b}"): 2 * max(weights) for a, b in edges}
    return dimod.BinaryQuadraticModel(linear, quadratic, 1.5, "BINARY")


def best(model: dimod.BinaryQuadraticModel) -> float:
    return float(dimod.ExactSolver().sample(model).first.energy)


@pytest.mark.parametrize(
    ("edges", "weights"),
    [
        ([], [1.0]),
        ([], [1.0] * 4),
        (ring(5), [1.0] * 5),
        (ring(8), [3.0] * 8),
        (ring(10), [1.0] * 10),
        (LADDER, [1.0] * 6),
        (STAR, [1.0] * 5),
        (STAR, [6.0, 1.0, 1.0, 1.0, 1.0]),
        (TRIANGLES, [1.0, 1.0, 2.0, 1.0, 1.5]),
        (list(combinations(range(4), 2)), [1.0, 2.0, 3.0, 4.0]),
    ],
    ids=["one", "apart", "5", "8", "10", "ladder", "star", "heavy", "triangles", "clique"],
)
def test_the_best_sample_is_the_optimum(edges: list[Edge], weights: list[float]) -> None:
    model, device = independent(edges, weights), Atoms()
    device.check(model)
    samples = device.solve(model, 1000, seed=1)
    assert samples.first.energy == pytest.approx(best(model))
    assert sum(samples.record.num_occurrences) == 1000
    assert list(samples.record.energy) == sorted(samples.record.energy)


def test_answers_repeat_themselves_and_depend_on_the_seed() -> None:
    model, device = independent(ring(5), [1.0] * 5), Atoms()
    first, again, other = (encode_answer(device.solve(model, 100, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_models_of_spins_are_answered_in_spins() -> None:
    model = independent(ring(5), [1.0] * 5).change_vartype(dimod.SPIN, inplace=False)
    device = Atoms()
    device.check(model)
    samples = device.solve(model, 200, seed=3)
    assert samples.vartype is dimod.SPIN
    assert samples.first.energy == pytest.approx(model.energy(samples.first.sample))
    assert samples.first.energy == pytest.approx(best(model))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (independent([], [1.0] * 11), "takes 10 variables at most; the model has 11"),
        (dimod.BQM({"a": 1}, {}, "BINARY"), r"every linear bias \(0/1\) is negative"),
        (dimod.BQM({"a": -1, "b": -1}, {"ab": 1e-3}, "BINARY"), "outweigh every linear bias"),
        (dimod.BQM({"a": -1, "b": -1}, {"ab": -2}, "BINARY"), "outweigh every linear bias"),
        (
            dimod.BQM({"a": -1, "b": -1, "c": -1}, {"ab": 2, "bc": 3}, "BINARY"),
            "couplings are all equal",
        ),
        (independent([(0, i) for i in range(1, 7)], [1.0] * 7), "a unit-disk graph"),
        (independent([(a, b) for a in range(3) for b in range(3, 6)], [1.0] * 6), "a unit-disk"),
    ],
)
def test_what_atoms_cannot_do_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(PayloadRefused, match=sentence):
        Atoms().check(model)


@pytest.mark.parametrize("edges", [ring(7), LADDER, STAR, TRIANGLES])
def test_places_are_near_for_edges_alone(edges: list[Edge]) -> None:
    atoms = max(max(edge) for edge in edges) + 1
    wanted = frozenset((min(edge), max(edge)) for edge in edges)
    found = layout(atoms, wanted)
    assert found is not None
    places, margin = found
    for a, b in combinations(range(atoms), 2):
        distance = sum((x - y) ** 2 for x, y in zip(places[a], places[b], strict=True)) ** 0.5
        assert (distance <= 1 + 1e-9) == ((a, b) in wanted)
        assert distance <= 1 + 1e-9 or distance >= margin - 1e-9
    assert margin <= FAR
