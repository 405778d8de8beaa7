"""Tasks that run on nodes: read the graph, write the answer and its picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qtide.apps.colouring.answer import Answer
from qtide.apps.colouring.cutting.cut_plan import clustered
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.reading import GraphError, Named, read_graph
from qtide.core.files import write_whole


def load_graph(file: str, generated: list[int], seed: int) -> Named:
    """Read the graph from a file, or generate a clustered one."""
    if bool(file) == bool(generated):
        raise GraphError("give either a file with a graph, or --clustered K,d,n")
    if not generated:
        return read_graph(file)
    if len(generated) != 3:
        raise GraphError("--clustered takes three numbers: K,d,n, as in 1,4,9")
    separators, largest, vertices = generated
    return clustered(separators, largest, vertices, seed)


def note_answer(folder: Path, read: Named, answer: Answer) -> list[str]:
    """Write the best known colouring and its proof to the run's folder."""
    colours = answer.colours(read.graph)
    size = {"vertices": read.graph.size, "edges": len(read.graph.edges)}
    described: dict[str, Any] = {"graph": read.source} | size | answer.as_dict()
    described["support"] = [read.names[each] for each in answer.support]
    described["colouring"] = dict(zip(read.names, colours, strict=True))
    write_whole(folder / "colouring.json", (json.dumps(described, indent=2) + "\n").encode())
    return ["colouring.json"]


def write_results(folder: Path, read: Named, answer: Answer) -> list[str]:
    """Write the final answer and its picture."""

    files = note_answer(folder, read, answer)
    number = "1 colour" if answer.upper == 1 else f"{answer.upper} colours"
    told = "proven" if answer.proven else f"at least {answer.lower}"
    title = f"{read.source}: {read.graph.size:,} vertices, {number}, {told}"
    picture = folder / "colouring.png"
    draw_colouring(picture, read.graph, answer.colours(read.graph), read.names, title)
    return [*files, picture.name]


MOST_NAMED = 60


def draw_colouring(
    path: Path, graph: Graph, colours: Sequence[int], names: Sequence[str], title: str
) -> None:
    """Write a PNG with vertices in the colours of their classes and edges as thin lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_title(title)
    places = layout(graph)
    lines = [places[list(edge)] for edge in graph.edges]
    faint = float(np.clip(200 / max(1, len(lines)), 0.08, 0.6))
    axes.add_collection(LineCollection(lines, colors="0.45", linewidths=0.7, alpha=faint))
    size = float(np.clip(9_000 / graph.size, 12, 380))
    face = [_colour(colour, max(colours) + 1) for colour in colours]
    axes.scatter(
        places[:, 0], places[:, 1], s=size, c=face, edgecolors="white", linewidths=0.8, zorder=2
    )
    if graph.size <= MOST_NAMED:
        small = 8 if max(map(len, names)) <= 3 else 6
        for place, name in zip(places, names, strict=True):
            axes.annotate(name[:12], place, ha="center", va="center", fontsize=small, zorder=3)
    axes.margins(0.06)
    figure.savefig(path, format="png", metadata={"Software": None})


def _colour(colour: int, number: int) -> Any:
    """Pick a colour light enough for black names; from a colour wheel above twenty classes."""
    from matplotlib import colormaps

    if number <= 10:
        strong = np.array(colormaps["tab10"](colour)[:3])
    elif number <= 20:
        strong = np.array(colormaps["tab20"](colour)[:3])
    else:
        strong = np.array(colormaps["hsv"](colour / number)[:3])
    return tuple(0.3 + 0.7 * strong)


Places = np.ndarray[Any, np.dtype[np.float64]]
WORK = 2e7
"""Most distances computed for a layout: a second or less."""


def layout(graph: Graph) -> Places:
    """Place the vertices: adjacent ones attract each other, all repel each other."""
    size = graph.size
    angles = 2 * np.pi * np.arange(size) / size
    circle: Places = np.stack([np.cos(angles), np.sin(angles)], axis=1) * size**0.5
    places = circle + np.random.default_rng(0).normal(0, 0.1, circle.shape)
    joined = np.zeros((size, size))
    for a, b in graph.edges:
        joined[a, b] = joined[b, a] = 1.0
    steps = int(np.clip(WORK / size**2, 20, 300))
    for step in range(steps):
        places = _moved(places, joined, reach=0.1 * size**0.5 * (1 - step / steps))
    return places


def _moved(places: Places, joined: Places, reach: float) -> Places:
    """Do one Fruchterman–Reingold step; no vertex moves farther than `reach`."""
    between = places[:, None] - places[None]
    apart = np.maximum(np.sqrt((between**2).sum(axis=-1)), 0.01)
    push = 1 / apart**2 - joined * apart
    force = (between * push[..., None]).sum(axis=1) - 0.02 * places
    length = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
    return np.asarray(places + force / length * np.minimum(length, reach))
