"""Bounds, the exact search and its pieces, against an exact solver and brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.apps.colouring.bounds import bounds, dsatur, largest_clique, mycielski
from qtide.apps.colouring.graph import Graph, bits, components, everything, mask_of
from qtide.apps.colouring.independent import (
    is_independent,
    maximal,
    maximal_sets,
    repaired,
    verified,
)
from qtide.apps.colouring.reading import read_graph
from qtide.apps.colouring.search import PieceVerdict, first_piece, kernel_of, search_pieces
from tests.apps.colouring.graphs import DATA, chromatic, queens, random_graph
from tests.apps.colouring.graphs import mycielski as mycielski_graph


@st.composite
def graphs(draw: st.DrawFn, most: int = 9) -> Graph:
    size = draw(st.integers(1, most))
    pairs = list(combinations(range(size), 2))
    return Graph.of(size, [pair for pair in pairs if draw(st.booleans())])


def searched(graph: Graph, colours: int, budget: int = 1_000_000) -> PieceVerdict:
    """The verdict on a number of colours, piece by piece if the budget is small."""
    kernel = kernel_of(graph, colours)
    found = first_piece(kernel)
    while found.open and not found.refuted:
        found = search_pieces(kernel, found.open, budget)
        budget += 1
    return found


def needed(graph: Graph) -> int:
    """The chromatic number by the search alone, from one colour on."""
    return next(k for k in range(graph.size + 1) if searched(graph, k).classes is not None)


def is_colouring(graph: Graph, classes: Sequence[int]) -> bool:
    proper = all(is_independent(graph.neighbours, each) for each in classes)
    return proper and sum(classes) == everything(graph)


def brute_force_sets(graph: Graph) -> set[int]:
    free = [m for m in range(1 << graph.size) if is_independent(graph.neighbours, m)]
    return {one for one in free if not any(one != other and one & other == one for other in free)}


@given(graphs())
def test_every_maximal_independent_set_is_found_once(graph: Graph) -> None:
    found = list(maximal_sets(graph.neighbours, everything(graph)))
    assert len(found) == len(set(found))
    assert set(found) == brute_force_sets(graph)


@given(graphs(), st.lists(st.frozensets(st.integers(0, 8)), max_size=4))
def test_what_a_step_gives_is_made_independent_and_maximal(
    graph: Graph, sets: list[frozenset[int]]
) -> None:
    found = verified(graph.neighbours, everything(graph), sets)
    assert len(found) == len(set(found)) <= len(sets)
    assert bool(found) == bool(sets)
    assert set(found) <= brute_force_sets(graph)


@given(graphs(), st.integers(0, 511))
def test_a_set_that_is_independent_stays_as_it_is(graph: Graph, chosen: int) -> None:
    chosen = repaired(graph.neighbours, chosen & everything(graph))
    assert is_independent(graph.neighbours, chosen)
    assert repaired(graph.neighbours, chosen) == chosen
    assert maximal(graph.neighbours, everything(graph), chosen) & chosen == chosen


@given(graphs())
def test_bounds_hold(graph: Graph) -> None:
    found, number = bounds(graph, greedy=True), chromatic(graph)
    assert len(found.clique) <= found.lower <= number <= len(found.classes)
    assert is_colouring(graph, list(found.classes))
    assert chromatic(graph.subgraph(found.support)) >= found.lower
    assert all(graph.neighbours[a] >> b & 1 for a, b in combinations(found.clique, 2))


@given(graphs(most=12))
def test_the_largest_clique_is_found(graph: Graph) -> None:
    other = Graph.of(graph.size, set(combinations(range(graph.size), 2)) - set(graph.edges))
    largest = max(m.bit_count() for m in maximal_sets(other.neighbours, everything(graph)))
    assert largest_clique(graph.neighbours, everything(graph)).bit_count() == largest


@given(graphs(most=12))
def test_the_search_finds_the_chromatic_number(graph: Graph) -> None:
    number = chromatic(graph)
    assert needed(graph) == number
    classes = searched(graph, number).classes
    assert classes is not None and len(classes) <= number
    assert is_colouring(graph, classes)


@pytest.mark.parametrize("density", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_random_graphs_of_thirty_vertices(density: float) -> None:
    graph = random_graph(30, density, seed=int(10 * density))
    assert needed(graph) == chromatic(graph)


@settings(max_examples=100)
@given(graphs(most=11), st.integers(1, 30))
def test_pieces_with_small_budgets_come_to_the_same_verdict(graph: Graph, budget: int) -> None:
    number = needed(graph)
    assert searched(graph, number - 1, budget).classes is None
    classes = searched(graph, number, budget).classes
    assert classes is not None and is_colouring(graph, classes)


@given(graphs(most=10), graphs(most=10))
def test_parts_that_no_edge_joins_are_decided_apart(one: Graph, two: Graph) -> None:
    pairs = [*one.edges, *((one.size + a, one.size + b) for a, b in two.edges)]
    both = Graph.of(one.size + two.size, pairs)
    number = max(needed(one), needed(two))
    assert searched(both, number - 1, 3).classes is None
    classes = searched(both, number, 3).classes
    assert classes is not None and is_colouring(both, classes)


def test_a_budget_ends_the_search() -> None:
    graph = random_graph(60, 0.5, seed=1)
    verdict = search_pieces(kernel_of(graph, 10), [()], 20)
    assert verdict.classes is None and not verdict.refuted
    assert verdict.open and verdict.branches == 20


def test_vertices_that_must_have_the_same_colour_become_one() -> None:
    """With three colours, the ends of a chain of diamonds are equal; an edge between refutes it."""
    pairs = [(3 * n + a, 3 * n + b) for n in range(9) for a, b in DIAMOND]
    chain = Graph.of(28, pairs)
    assert kernel_of(Graph.of(28, [*pairs, (0, 27)]), 3).refuted
    assert needed(chain) == 3
    mug = read_graph(DATA / "mug88_1.col").graph
    assert kernel_of(mug, 3).refuted and searched(mug, 4).classes is not None


DIAMOND = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3))


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_mycielskis_graphs_are_taken_apart_however_they_are_numbered(number: int) -> None:
    graph = mycielski_graph(number)
    places = list(range(graph.size))
    Random(number).shuffle(places)
    shuffled = Graph.of(graph.size, ((places[a], places[b]) for a, b in graph.edges))
    found = bounds(shuffled, greedy=True)
    assert found.lower == len(found.classes) == number + 1


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_of_fifty_vertices_take_few_branches(seed: int) -> None:
    graph = random_graph(50, 0.3, seed)
    number = chromatic(graph)
    below, at = searched(graph, number - 1), searched(graph, number)
    assert below.classes is None and at.classes is not None
    assert below.branches + at.branches < 20_000


def test_a_board_needs_its_queens() -> None:
    assert searched(queens(6), 6).classes is None
    assert searched(queens(6), 7).classes is not None


def test_the_bound_goes_beyond_cliques() -> None:
    """A ring of five needs three colours, and Mycielski's graph of it four, without a triangle."""
    ring = Graph.of(5, [(n, (n + 1) % 5) for n in range(5)])
    assert mycielski(ring.neighbours, 0b11111, 0b11) == (3, 0b11111)
    assert needed(mycielski_graph(3)) == 4


@pytest.mark.parametrize(("name", "colours"), [("huck", 11), ("jean", 10)])
def test_the_books_of_the_graph_base(name: str, colours: int) -> None:
    graph = read_graph(DATA / f"{name}.col").graph
    found = bounds(graph, greedy=True)
    assert found.lower == len(found.classes) == colours


@given(graphs())
def test_components_are_the_graphs_own(graph: Graph) -> None:
    found = components(graph.neighbours, everything(graph))
    assert [tuple(bits(each)) for each in found] == graph.components()
    assert sum(found) == everything(graph)
    assert mask_of(v for each in found for v in bits(each)) == everything(graph)


@given(graphs())
def test_greedy_colourings_are_proper(graph: Graph) -> None:
    assert is_colouring(graph, dsatur(graph.neighbours, everything(graph)))
