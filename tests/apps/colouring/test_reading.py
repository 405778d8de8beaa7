"""Graph files: what is read, and the sentence for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from qtide.apps.colouring.cutting.cut_plan import clustered
from qtide.apps.colouring.graph import Graph, components, everything
from qtide.apps.colouring.reading import GraphError, Named, read_graph
from tests.apps.colouring.graphs import mycielski, write_dimacs

GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="w" for="edge" attr.name="weight" attr.type="double"/>
  <graph edgedefault="undirected">
    <node id="ada"/><node id="bob"/><node id="eve"/><node id="solo"/>
    <edge source="bob" target="ada"><data key="w">1.5</data></edge>
    <edge source="ada" target="bob"/><edge source="eve" target="bob"/>
  </graph>
</graphml>
"""
LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE graphml [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<graphml><graph><node id="&b;"/></graph></graphml>"""


def read(folder: Path, text: str, name: str = "g.txt") -> Named:
    (folder / name).write_text(text)
    return read_graph(folder / name)


def test_dimacs(tmp_path: Path) -> None:
    graph = mycielski(4)
    found = read_graph(write_dimacs(tmp_path / "myciel4.col", graph))
    assert found.graph == graph
    assert found.names[:2] == ("1", "2")
    assert found.source == "myciel4.col"


def test_dimacs_with_both_directions_and_other_lines(tmp_path: Path) -> None:
    text = "c x\n\np col 3 4\nn 1 7\ne 1 2\ne 2 1\ne 3 2\ne 2 3\n"
    assert read(tmp_path, text).graph == Graph(3, ((0, 1), (1, 2)))


def test_edge_lists(tmp_path: Path) -> None:
    found = read(tmp_path, "# a comment\n10 2 0.5\n2,9\n9;10\n\n11\n")
    assert found.names == ("2", "9", "10", "11")
    assert found.graph == Graph(4, ((0, 1), (0, 2), (1, 2)))


def test_graphml(tmp_path: Path) -> None:
    found = read(tmp_path, GRAPHML)
    assert found.names == ("ada", "bob", "eve", "solo")
    assert found.graph == Graph(4, ((0, 1), (1, 2)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file has 0 bytes"),
        ("# nothing\n", "the graph has no vertices"),
        ("p edge 0 0\n", "the graph has no vertices"),
        ("p edge 3 1\ne 2 2\n", "g.txt, line 2: vertex 2 has an edge to itself"),
        ("p edge -3 1\ne 1 2\n", "line 1: 'p edge -3 1' gives no counts of vertices"),
        ("p edge 3 -1\n", "gives no counts of vertices and edges"),
        ("p edge 3\n", "is not the problem line"),
        ("p cnf 3 1\n1 2 0\n", "is not the problem line"),
        ("e 1 2\n", "is not the problem line"),
        ("p edge 3 1\ne 1 4\n", "line 2: there is no vertex 4; they are numbered from 1 to 3"),
        ("p edge 3 1\ne 0 1\n", "there is no vertex 0"),
        ("p edge 3 1\ne 1\n", "line 2: 'e 1' is not an edge"),
        ("p edge 3 1\nf 1 2\n", "line 2: 'f 1 2' is not an edge"),
        ("p edge 1000000 1\ne 1 2\n", "1,000,000 vertices are too many for an exact search"),
        ("".join(f"{n} {n + 1}\n" for n in range(2500)), "2,501 vertices are too many"),
        ("a a\n", "g.txt, line 1: vertex a has an edge to itself"),
        ("1 -2\n", "line 1: a vertex cannot have a negative number"),
        ("Dear Sir or Madam,\nthis is a letter.\n", "line 1: this is not an edge"),
        ('{"nodes": [1, 2], "edges": [[1, 2]]}', "line 1: this is not an edge"),
        ("<html><body/></html>", "there is no <graph> in it"),
        ("<graphml><graph>", "this is not GraphML"),
        ("<graphml><graph/></graphml>", "the graph has no vertices"),
        (LAUGHS, "it declares a document type"),
        ("<graphml><graph><node/></graph></graphml>", "a <node> has no id"),
        (GRAPHML.replace('"eve" target', '"joe" target'), "names the node 'joe', which is not"),
        (GRAPHML.replace('source="eve"', 'source="bob"'), "vertex bob has an edge to itself"),
        ("<graphml><graph><hyperedge/></graph></graphml>", "hyperedges cannot be coloured"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(GraphError) as refused:
        read(tmp_path, text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0", b"p edge 2 1\0", b"\xff\xfe\x00"])
def test_binary_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "g.col.b").write_bytes(data)
    with pytest.raises(GraphError, match="not a graph file but binary data"):
        read_graph(tmp_path / "g.col.b")


def test_missing_folders_and_huge_files(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="there is no such file"):
        read_graph(tmp_path / "nowhere.col")
    with pytest.raises(GraphError, match="there is no such file"):
        read_graph(tmp_path)
    with (tmp_path / "huge.col").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(GraphError, match=r"has 1,024 MiB, more than 64"):
        read_graph(tmp_path / "huge.col")


@pytest.mark.parametrize("shape", [(1, 4, 9), (2, 5, 14), (3, 3, 20), (1, 1, 2)])
def test_clustered_graphs_fall_apart_without_their_separators(shape: tuple[int, int, int]) -> None:
    separators, largest, vertices = shape
    graph = clustered(*shape, seed=3).graph
    rest = everything(graph) & ~((1 << separators) - 1)
    parts = components(graph.neighbours, rest)
    assert graph.size == vertices
    assert len(graph.components()) == 1
    assert max(part.bit_count() for part in parts) <= largest
    assert clustered(*shape, seed=3).graph == graph


def test_clustered_graphs_differ_by_seed() -> None:
    assert len({clustered(1, 4, 13, seed).graph for seed in range(5)}) == 5


@pytest.mark.parametrize("shape", [(0, 4, 9), (9, 4, 9), (1, 0, 9), (1, 4, 0), (-1, -1, 3)])
def test_impossible_clusters_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(GraphError):
        clustered(*shape, seed=0)
