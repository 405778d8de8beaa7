"""Reading graphs; if a file cannot be used, one sentence says why."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qtide.apps.colouring.graph import Graph
from qtide.errors import UsageError

MOST_BYTES = 64 * 2**20
MOST_VERTICES = 2_000
"""The bounds of a graph of this size take seconds; an exact search may take for ever anyway."""

Name = TypeVar("Name", bound=Hashable)


class GraphError(UsageError, ValueError):
    """A graph that cannot be coloured: what was wrong, where, what to do."""


@dataclass(frozen=True)
class Named:
    """A graph, what its vertices are called, and where it comes from."""

    graph: Graph
    names: tuple[str, ...]
    source: str


def read_graph(path: str | Path) -> Named:
    """The graph of a file: DIMACS, GraphML or a list of edges, told apart by what is in it."""
    from qtide.apps.colouring import dimacs, edge_list, graphml

    file = Path(path)
    text = _text(file)
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return graphml.parse(text, file.name)
    if dimacs.recognises(text):
        return dimacs.parse(text, file.name)
    return edge_list.parse(text, file.name)


def named(names: Iterable[Name], pairs: Iterable[tuple[Name, Name]], source: str) -> Named:
    """The graph of these vertices and edges, checked."""
    number = {name: place for place, name in enumerate(names)}
    check_size(len(number), source)
    graph = Graph.of(len(number), ((number[a], number[b]) for a, b in pairs))
    return Named(graph, tuple(str(name) for name in number), source)


def check_size(vertices: int, source: str) -> None:
    """Refuse a graph without vertices, and one with too many."""
    if vertices < 1:
        raise GraphError(f"{source}: the graph has no vertices; give at least one.")
    if vertices > MOST_VERTICES:
        raise GraphError(
            f"{source}: {vertices:,} vertices are too many for an exact search, which takes up to"
            f" {MOST_VERTICES:,}; give a part of the graph."
        )


def refuse_loop(vertex: object, where: str) -> None:
    """A vertex cannot differ from itself."""
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
