"""Read graphs; if a file cannot be used, say why in one sentence."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar
from xml.parsers import expat

from qtide.apps.colouring.graph import Graph
from qtide.core.errors import UsageError

MOST_BYTES = 64 * 2**20
MOST_VERTICES = 2_000
"""Bounds of a graph of this size take seconds; an exact search may take forever anyway."""

Name = TypeVar("Name", bound=Hashable)


class GraphError(UsageError, ValueError):
    """A graph that cannot be coloured; says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Named:
    """A graph, the names of its vertices, and its source."""

    graph: Graph
    names: tuple[str, ...]
    source: str


def read_graph(path: str | Path) -> Named:
    """Read a graph from DIMACS, GraphML or a list of edges; detect the format by content."""

    file = Path(path)
    text = _text(file)
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return parse_graphml(text, file.name)
    if is_dimacs(text):
        return parse_dimacs(text, file.name)
    return parse_edges(text, file.name)


def named(names: Iterable[Name], pairs: Iterable[tuple[Name, Name]], source: str) -> Named:
    """Build the graph of these vertices and edges; check its size."""
    number = {name: place for place, name in enumerate(names)}
    check_size(len(number), source)
    graph = Graph.of(len(number), ((number[a], number[b]) for a, b in pairs))
    return Named(graph, tuple(str(name) for name in number), source)


def check_size(vertices: int, source: str) -> None:
    """Refuse a graph with no vertices or too many."""
    if vertices < 1:
        raise GraphError(f"{source}: the graph has no vertices; give at least one.")
    if vertices > MOST_VERTICES:
        raise GraphError(
            f"{source}: {vertices:,} vertices are too many for an exact search, which takes up to"
            f" {MOST_VERTICES:,}; give a part of the graph."
        )


def refuse_loop(vertex: object, where: str) -> None:
    """Raise GraphError: a vertex with an edge to itself cannot be coloured."""
    raise GraphError(
        f"{where}: vertex {vertex} has an edge to itself, so that no colouring exists;"
        " remove the edge."
    )


def _text(file: Path) -> str:
    if not file.is_file():
        raise GraphError(f"{file}: there is no such file; check the path.")
    size = file.stat().st_size
    if not 0 < size <= MOST_BYTES:
        reason = "has 0 bytes" if not size else f"has {size / 2**20:,.0f} MiB, more than 64"
        raise GraphError(f"{file}: the file {reason}; write it again, or give a part of the graph.")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = "\0"
    except OSError as error:
        raise GraphError(f"{file}: it cannot be read ({error.strerror}).") from None
    if "\0" in text:
        raise GraphError(
            f"{file}: this is not a graph file but binary data;"
            " give DIMACS (ASCII), GraphML or a list of edges."
        )
    return text


IGNORED = ("c", "n", "d", "v", "x")
"""Kinds of lines to skip: comments, weights and coordinates."""


def is_dimacs(text: str) -> bool:
    """Whether the first line that is not empty or a comment is a DIMACS line."""
    lines = (line.split() for line in text.splitlines())
    first = next((words for words in lines if words and words[0] != "c"), [])
    return bool(first) and first[0] in ("p", "e")


def parse_dimacs(text: str, source: str) -> Named:
    """Parse DIMACS; the vertices are named 1, 2, …"""
    lines = list(_lines(text))
    size = _size(lines, source)
    check_size(size, source)
    return named(range(1, size + 1), _edges(lines, size, source), source)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and words[0] not in IGNORED:
            yield number, words


def _size(lines: list[tuple[int, list[str]]], source: str) -> int:
    number, words = lines[0]
    if words[0] != "p" or len(words) < 4 or words[1] not in ("edge", "col", "edges"):
        raise GraphError(
            f"{source}, line {number}: {_brief(words)} is not the problem line;"
            " write 'p edge VERTICES EDGES' before the edges."
        )
    counts = [_count(word) for word in words[2:4]]
    if None in counts:
        raise GraphError(
            f"{source}, line {number}: {_brief(words)} gives no counts of vertices and edges;"
            " write two numbers from 0 on."
        )
    return counts[0] or 0


def _edges(lines: list[tuple[int, list[str]]], size: int, source: str) -> Iterator[tuple[int, int]]:
    for number, words in lines[1:]:
        where = f"{source}, line {number}"
        ends = [_count(word) for word in words[1:3]]
        if words[0] != "e" or len(ends) < 2 or None in ends:
            raise GraphError(f"{where}: {_brief(words)} is not an edge; write 'e FROM TO'.")
        first, second = (each or 0 for each in ends)
        for vertex in (first, second):
            if not 1 <= vertex <= size:
                raise GraphError(
                    f"{where}: there is no vertex {vertex}; they are numbered from 1 to {size}."
                )
        if first == second:
            refuse_loop(first, where)
        yield first, second


def _count(word: str) -> int | None:
    return int(word) if re.fullmatch(r"\d{1,12}", word, re.ASCII) else None


def _brief(words: list[str]) -> str:
    text = " ".join(words)
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


COMMENTS = ("#", "%", "//")
LONGEST = 100
"""Most characters of a name; a longer one suggests another kind of file."""


def parse_edges(text: str, source: str) -> Named:
    """Parse a list of edges; a name alone on its line is a vertex."""
    names: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        words = line.replace(",", " ").replace(";", " ").split()
        if not words or words[0].startswith(COMMENTS):
            continue
        names.update(_ends(words, f"{source}, line {number}"))
        if len(words) > 1:
            pairs.append((words[0], words[1]))
    return named(_sorted(names), pairs, source)


def _ends(words: list[str], where: str) -> list[str]:
    ends = words[:2]
    if len(words) > 3 or any(len(each) > LONGEST or not each.isprintable() for each in ends):
        raise GraphError(
            f"{where}: this is not an edge; write two names per line, and a weight if you like,"
            " or give DIMACS or GraphML."
        )
    if len(ends) == 2 and ends[0] == ends[1]:
        refuse_loop(ends[0], where)
    if any(each.startswith("-") and each[1:].isdecimal() for each in ends):
        raise GraphError(f"{where}: a vertex cannot have a negative number; number them from 0.")
    return ends


def _sorted(names: set[str]) -> list[str]:
    """Sort by value if all names are numbers, otherwise alphabetically."""
    if all(each.isdecimal() for each in names):
        return sorted(names, key=lambda each: (int(each), each))
    return sorted(names)


def parse_graphml(text: str, source: str) -> Named:
    """Parse GraphML; ignore the direction of edges and name vertices by their ids."""
    reader = _Reader(source)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = reader.element
    parser.StartDoctypeDeclHandler = reader.declaration
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise GraphError(f"{source}: this is not GraphML ({error}); write it again.") from None
    if not reader.is_graph:
        raise GraphError(f"{source}: there is no <graph> in it; give GraphML.")
    _check_ends(reader.names, reader.pairs, source)
    return named(reader.names, reader.pairs, source)


class _Reader:
    """Collects the nodes and edges that the parser reports."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.names: dict[str, None] = {}
        self.pairs: list[tuple[str, str]] = []
        self.is_graph = False

    def element(self, tag: str, attributes: dict[str, str]) -> None:
        """Record a node or an edge; refuse hyperedges and ignore other elements."""
        match tag.rpartition("}")[2]:
            case "graph":
                self.is_graph = True
            case "node":
                self.names[self._attribute("node", "id", attributes)] = None
            case "edge":
                ends = [self._attribute("edge", end, attributes) for end in ("source", "target")]
                self.pairs.append((ends[0], ends[1]))
            case "hyperedge":
                raise GraphError(f"{self._source}: hyperedges cannot be coloured; remove them.")

    def declaration(self, *_: object) -> NoReturn:
        """Refuse a document type declaration."""
        raise GraphError(
            f"{self._source}: it declares a document type, which GraphML does not need"
            " and a reader should not trust; remove the declaration."
        )

    def _attribute(self, tag: str, name: str, attributes: dict[str, str]) -> str:
        if name not in attributes:
            raise GraphError(f"{self._source}: a <{tag}> has no {name}; give each one.")
        return attributes[name]


def _check_ends(names: dict[str, None], pairs: list[tuple[str, str]], source: str) -> None:
    for pair in pairs:
        for name in pair:
            if name not in names:
                raise GraphError(f"{source}: an edge names the node {name!r}, which is not there.")
        if pair[0] == pair[1]:
            refuse_loop(pair[0], source)
