"""Lists of edges: two names per line; what follows them, such as a weight, does not matter."""

from __future__ import annotations

from qtide.apps.colouring.reading import GraphError, Named, named, refuse_loop

COMMENTS = ("#", "%", "//")
LONGEST = 100
"""Characters of a name: a longer one is a sign of another kind of file."""


def parse(text: str, source: str) -> Named:
    """The graph of the names; a name that is alone on its line is a vertex without an edge."""
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
    """Numbers by their value, other names by the alphabet."""
    if all(each.isdecimal() for each in names):
        return sorted(names, key=lambda each: (int(each), each))
    return sorted(names)
