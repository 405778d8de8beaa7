"""Graph colouring by branch and bound over independent sets, one colour class at a time.

First, a step finds sets on a QPU or a node, and these guide a few partial colourings to good
complete ones. Then an exact search, in pieces on all nodes, closes what is still open. So a better
step finds good colourings sooner, and every step leads to the same chromatic number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

from qtide import Target, classical, program, task, together
from qtide.apps.colouring import tasks
from qtide.apps.colouring.answer import Answer, first_answer
from qtide.apps.colouring.bounds import bounds
from qtide.apps.colouring.graph import Graph, bits, everything
from qtide.apps.colouring.independent import Partial, grow, selected
from qtide.apps.colouring.reading import Named
from qtide.apps.colouring.search import PieceVerdict, first_piece, kernel_of, search_pieces
from qtide.apps.colouring.steps import Step, step_for
from qtide.core.errors import UsageError

PARTS = 16
"""Tasks per round, independent of the number of nodes so that all runs are alike."""

FIRST_BUDGET, LAST_BUDGET = 10_000, 500_000
"""Effort per task; tenths of a second at first, so that hard pieces are split early."""


@program
async def colouring(
    graph: str = "",
    *,
    clustered: list[int] = [],  # noqa: B006 - never changed
    sets: str = "exact",
    width: int = 2,
    greedy: bool = True,
    effort: int = 10_000_000,
    picture: bool = True,
    seed: int = 0,
    folder: Path = Path(),
    target: Target | None = None,
) -> dict[str, Any]:
    """Colour GRAPH (DIMACS, GraphML, a list of edges), or a `clustered` one: K,d,n.

    `sets` names the step that finds independent sets: exact, annealing, atoms, qaoa or cut, or,
    as circuits on the QPU, qaoa-circuits or cut-circuits. `width` partial colourings grow at once.
    With `--no-greedy`, colourings come from the sets alone. The exact search ends after an
    `effort` of that many branches and reports the gap.
    """
    _check(width, effort)
    step = step_for(sets, target)
    read: Named = await task(tasks.load_graph, graph, clustered, seed)
    answer = first_answer(await task(bounds, read.graph, greedy=greedy))
    steps = 0
    if not answer.proven:
        answer, steps = await guided_search(
            read.graph, answer, step, width, greedy=greedy, seed=seed
        )
        await task(tasks.note_answer, folder.absolute(), read, answer)
    answer, branches = await exact_search(read, answer, effort, folder.absolute())
    write = tasks.write_results if picture else tasks.note_answer
    files = await task(write, folder.absolute(), read, answer)
    size = {"vertices": read.graph.size, "edges": len(read.graph.edges)}
    work = {"sets": sets, "steps": steps, "branches": branches}
    return {"graph": read.source} | size | answer.as_dict() | work | {"files": files}


def _check(width: int, effort: int) -> None:
    for name, value in (("width", width), ("effort", effort)):
        if value < 1:
            raise UsageError(f"--{name} has to be at least 1, not {value}")


async def guided_search(
    graph: Graph, answer: Answer, step: Step, width: int, *, greedy: bool, seed: int
) -> tuple[Answer, int]:
    """Search along the step's sets; return the best colouring and how often the step ran."""
    partials, steps = [Partial(everything(graph))], 0
    while partials and not answer.proven:
        sets = await together(
            *(_sets(graph, each, step, _mixed(seed, steps + n)) for n, each in enumerate(partials))
        )
        steps += len(partials)
        grown = await classical(
            *(
                task(grow, graph, each, some, greedy=greedy)
                for each, some in zip(partials, sets, strict=True)
            )
        )
        found = [each for some in grown for each in some]
        for each in sorted(found, key=lambda one: one.rank):
            answer = answer.better(each.complete)
        partials = selected((each for each in found if each.left), width, answer.upper)
    return answer, steps


async def _sets(graph: Graph, partial: Partial, step: Step, seed: int) -> list[frozenset[int]]:
    """Run the step on the vertices that are left."""
    vertices = list(bits(partial.left))
    rest = graph.subgraph(vertices)
    if not rest.edges:
        return [frozenset(vertices)]
    return [frozenset(vertices[each] for each in one) for one in await step(rest, seed)]


async def exact_search(
    read: Named, answer: Answer, effort: int, folder: Path
) -> tuple[Answer, int]:
    """Search exactly; note each better answer; return the last one and the number of branches."""
    branches = 0
    while not answer.proven and effort > 0:
        target = answer.upper - 1
        found = await _colour_with(read.graph, target, effort)
        branches, effort = branches + found.branches, effort - found.effort
        if found.classes is not None:
            answer = answer.better(found.classes)
            await task(tasks.note_answer, folder, read, answer)
        elif not found.open:
            answer = answer.closed(target, branches)
    return answer, branches


async def _colour_with(graph: Graph, target: int, most: int) -> PieceVerdict:
    """Search for a colouring with at most `target` colours, in pieces on all nodes."""
    kernel = await task(kernel_of, graph, target)
    found = first_piece(kernel)
    budget, branches, effort = FIRST_BUDGET, 0, 0
    while found.open and not found.refuted and effort < most:
        pieces = found.open
        parts = [pieces[n::PARTS] for n in range(min(PARTS, len(pieces)))]
        verdicts: list[PieceVerdict] = await classical(
            *(task(search_pieces, kernel, part, budget) for part in parts)
        )
        branches += sum(each.branches for each in verdicts)
        effort += sum(each.effort for each in verdicts)
        classes = next((each.classes for each in verdicts if each.classes is not None), None)
        still = tuple(piece for each in verdicts for piece in each.open)
        refuted = any(each.refuted for each in verdicts)
        found = PieceVerdict(classes, () if classes or refuted else still, branches, effort)
        budget = min(2 * budget, LAST_BUDGET)
    return found


def _mixed(seed: int, number: int) -> int:
    """Derive the seed of one call of a step."""
    return crc32(f"{seed} {number}".encode())
