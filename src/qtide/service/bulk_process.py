"""The process that reads and writes large bodies, so that the service never blocks on them."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from qtide.core.errors import PhaseError, QtideError
from qtide.core.files import keep_bytecode
from qtide.core.processes import Header, die_with_parent, frame, read
from qtide.core.sandbox import confine

MOST_MEMORY = 2**30
WORN = 256 * 1024
"""Kilobytes of memory beyond which the process exits, so that the next one starts small."""
NICENESS = 15


def main() -> None:
    """Run the functions named on the command line until the service has gone."""
    keep_bytecode()
    works = {each: _imported(each) for each in sys.argv[1:]}
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    die_with_parent()
    os.nice(NICENESS)
    answers.write(frame({"ready": True}))
    confine(MOST_MEMORY)
    # a fork inherits the peak of a large service; without it, each process would end after one body
    worn = max(WORN, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    while (message := read(sys.stdin.buffer)) is not None:
        for header, body in _done(works[message[0]["work"]], message[1]):
            answers.write(frame(header, body))
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > worn:
            return


def _done(work: Callable[[bytes], Any], body: bytes) -> Iterator[tuple[Header, bytes]]:
    """Yield the result, a long one in pieces, or the reason for a refusal."""
    try:
        result = work(body)
        if isinstance(result, tuple):
            yield {"words": result[0]}, result[1]
            return
        for piece in result:
            yield {"more": True}, piece
        yield {}, b""
    except (QtideError, PhaseError) as error:
        yield {"refused": str(error)}, b""
    except MemoryError:
        yield {"refused": "this needs too much memory to be read; send less at once"}, b""


def _imported(reference: str) -> Any:
    """Import a function; its module may have to prepare something while files can be opened."""
    name, _, function = reference.partition(":")
    module = import_module(name)
    getattr(module, "prepare", lambda: None)()
    return getattr(module, function)


if __name__ == "__main__":
    main()
