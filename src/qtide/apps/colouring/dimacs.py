"""DIMACS' format of colouring instances: `p edge VERTICES EDGES`, then `e FROM TO` lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qtide.apps.colouring.reading import GraphError, Named, check_size, named, refuse_loop

IGNORED = ("c", "n", "d", "v", "x")
"""Comments, and lines with weights or coordinates, which do not matter here."""


def recognises(text: str) -> bool:
    """Whether the first line that says something is one of DIMACS'."""
    lines = (line.split() for line in text.splitlines())
    first = next((words for words in lines if words and words[0] != "c"), [])
    return bool(first) and first[0] in ("p", "e")


def parse(text: str, source: str) -> Named:
    """The graph; its vertices are called 1, 2, …"""
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
