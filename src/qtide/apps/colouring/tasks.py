"""The tasks of the application that read and write; they run on nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qtide.apps.colouring.answer import Answer
from qtide.apps.colouring.clustered import clustered
from qtide.apps.colouring.reading import GraphError, Named, read_graph
from qtide.system.files import write_whole


def load_graph(file: str, generated: list[int], seed: int) -> Named:
    """The graph of a file, or a clustered one."""
    if bool(file) == bool(generated):
        raise GraphError("give either a file with a graph, or --clustered K,d,n")
    if not generated:
        return read_graph(file)
    if len(generated) != 3:
        raise GraphError("--clustered takes three numbers: K,d,n, as in 1,4,9")
    separators, largest, vertices = generated
    return clustered(separators, largest, vertices, seed)


def note_answer(folder: Path, read: Named, answer: Answer) -> list[str]:
    """Write the colouring and its proof, as far as they are known, to the run's folder."""
    colours = answer.colours(read.graph)
    size = {"vertices": read.graph.size, "edges": len(read.graph.edges)}
    described: dict[str, Any] = {"graph": read.source} | size | answer.as_dict()
    described["support"] = [read.names[each] for each in answer.support]
    described["colouring"] = dict(zip(read.names, colours, strict=True))
    write_whole(folder / "colouring.json", (json.dumps(described, indent=2) + "\n").encode())
    return ["colouring.json"]


def write_results(folder: Path, read: Named, answer: Answer) -> list[str]:
    """Write the final answer and its picture."""
    from qtide.apps.colouring.picture import draw_colouring

    files = note_answer(folder, read, answer)
    number = "1 colour" if answer.upper == 1 else f"{answer.upper} colours"
    told = "proven" if answer.proven else f"at least {answer.lower}"
    title = f"{read.source}: {read.graph.size:,} vertices, {number}, {told}"
    picture = folder / "colouring.png"
    draw_colouring(picture, read.graph, answer.colours(read.graph), read.names, title)
    return [*files, picture.name]
