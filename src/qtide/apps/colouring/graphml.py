"""GraphML, read by the standard library's parser without any declaration of types or entities.

Such declarations can make a small file expand to gigabytes, or refer to other files.
"""

from __future__ import annotations

from typing import NoReturn
from xml.parsers import expat

from qtide.apps.colouring.reading import GraphError, Named, named, refuse_loop


def parse(text: str, source: str) -> Named:
    """The graph, whatever the direction of its edges; its vertices are called by their ids."""
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
    """Collects what the parser sees."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.names: dict[str, None] = {}
        self.pairs: list[tuple[str, str]] = []
        self.is_graph = False

    def element(self, tag: str, attributes: dict[str, str]) -> None:
        """A node, an edge, or anything else, which does not matter."""
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
        """Refuse a document with declarations of its own."""
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
