"""Traces: jobs in order of submission, as columns of numbers; reads and writes SWF files."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from qtide.core.errors import UsageError

Array = np.ndarray[Any, Any]
CHUNK = 65_536
"""Number of jobs handed to the scheduler at once."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs in order of submission; all times are in seconds."""

    submit: Array
    nodes: Array
    run: Array
    limit: Array
    user: Array
    hybrid: Array | None = None
    """Which jobs are marked as hybrid; None if nothing is marked."""

    def __len__(self) -> int:
        return len(self.submit)

    @staticmethod
    def of(rows: Iterable[tuple[float, int, float, float, int]]) -> Trace:
        """Create a trace from rows of submission, nodes, run time, limit and user."""
        table = np.array(list(rows), dtype=float).reshape(-1, 5)
        submit, nodes, run, limit, user = table[np.argsort(table[:, 0], kind="stable")].T
        return Trace(submit, nodes.astype(np.int64), run, limit, user.astype(np.int64))

    def part(self, chosen: Any) -> Trace:
        """A trace of the chosen jobs, given by a slice, a mask or indices."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: each for name, each in columns.items() if each is not None}
        return Trace(**{name: column[chosen] for name, column in given.items()})

    def fitting(self, nodes: int) -> Trace:
        """The jobs that fit on a cluster of `nodes` nodes."""
        return self.part(self.nodes <= nodes)

    @staticmethod
    def merged(traces: Iterable[Trace]) -> Trace:
        """One trace of all jobs, in order of submission; marks are dropped."""
        names = [each.name for each in fields(Trace) if each.name != "hybrid"]
        all_of = list(traces)
        columns = {name: np.concatenate([getattr(t, name) for t in all_of]) for name in names}
        return Trace(**columns).part(np.argsort(columns["submit"], kind="stable"))

    def chunks(self, size: int = CHUNK) -> Iterator[Trace]:
        """Split the trace into traces of at most `size` jobs."""
        for start in range(0, len(self), size):
            yield self.part(slice(start, start + size))

    def check(self, nodes: int) -> None:
        """Reject jobs that would wait forever or are out of order."""
        if len(self) and int(self.nodes.max()) > nodes:
            raise UsageError(
                f"a job of the trace wants {int(self.nodes.max())} nodes, but the cluster has "
                f"{nodes}; name a larger cluster, or leave such jobs out"
            )
        if (np.diff(self.submit) < 0).any():
            raise UsageError("the trace is not in the order of submission; sort it first")


FIELDS = 18
"""Number of fields in a row of the Standard Workload Format."""
# indices of the columns in use
JOB, SUBMIT, WAIT, RUN, USED, WANTED, LIMIT, USER, EXECUTABLE = 0, 1, 2, 3, 4, 7, 8, 11, 13
HYBRID_HEADER, ORDINARY, HYBRID = "HybridExecutable", 1, 2
"""The header that names the executable number of hybrid jobs, and the numbers we write."""


@dataclass(frozen=True)
class SwfWorkload:
    """A trace in the Standard Workload Format, with data from its header."""

    trace: Trace
    nodes: int | None
    processors: int | None
    """Number of processors in the header; rows count processors, which we treat as nodes."""
    bad: tuple[str, ...]
    """One message for each skipped row."""

    def on_nodes(self, cores: int) -> SwfWorkload:
        """The same jobs on nodes with so many processors each, none of which jobs share."""
        nodes = -(-self.trace.nodes // cores)
        of_header = None if self.processors is None else -(-self.processors // cores)
        return SwfWorkload(replace(self.trace, nodes=nodes), of_header, None, self.bad)


def read_swf(file: Path, *, strict: bool = False) -> SwfWorkload:
    """Read a trace, which may be gzipped. Skip bad rows; with `strict`, raise UsageError."""
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("latin-1")
    except (OSError, EOFError) as error:
        raise UsageError(f"the trace {file} cannot be read ({error}); name an SWF file") from None
    lines = text.splitlines()
    rows, bad = _parsed(lines)
    trace, unusable = _jobs(rows, _header(lines, HYBRID_HEADER))
    bad = sorted([*bad, *unusable])
    named = tuple(f"{file}, line {number}: {reason}" for number, reason in bad)
    if strict and named:
        raise UsageError(f"{named[0]}; correct it, or let bad rows be skipped")
    processors = _header(lines, "MaxProcs")
    return SwfWorkload(trace, _header(lines, "MaxNodes") or processors, processors, named)


def write_swf(file: Path, trace: Trace, nodes: int) -> None:
    """Write a trace in the Standard Workload Format."""
    table = np.full((len(trace), FIELDS), -1.0)
    table[:, JOB] = np.arange(1, len(trace) + 1)
    table[:, SUBMIT], table[:, RUN], table[:, LIMIT] = trace.submit, trace.run, trace.limit
    table[:, USED] = table[:, WANTED] = trace.nodes
    table[:, USER], table[:, 10] = trace.user, 1
    marks = ""
    if trace.hybrid is not None:
        table[:, EXECUTABLE] = np.where(trace.hybrid, HYBRID, ORDINARY)
        marks = f"; {HYBRID_HEADER}: {HYBRID}\n"
    with file.open("w") as opened:
        opened.write(f"; Version: 2.2\n; MaxNodes: {nodes}\n; MaxProcs: {nodes}\n{marks}")
        np.savetxt(opened, table, fmt="%.12g")


def _parsed(lines: list[str]) -> tuple[Array, list[tuple[int, str]]]:
    """The parsed rows, each preceded by its line number, and the bad lines with reasons."""
    numbers = [n for n, line in enumerate(lines, 1) if line[:1] != ";" and line.strip()]
    texts = [lines[number - 1] for number in numbers]
    try:
        flat = np.array(" ".join(texts).split(), dtype=float)
        if all(len(text.split()) == FIELDS for text in texts):
            return np.column_stack([numbers, flat.reshape(-1, FIELDS)]), []
    except ValueError:
        pass
    return _one_by_one(numbers, texts)


def _one_by_one(numbers: list[int], texts: list[str]) -> tuple[Array, list[tuple[int, str]]]:
    """Parse row by row, as some rows are bad."""
    rows, bad = [], []
    for number, text in zip(numbers, texts, strict=True):
        words = text.split()
        try:
            if len(words) != FIELDS:
                raise ValueError(f"it has {len(words)} fields instead of {FIELDS}")  # noqa: TRY301
            rows.append([float(number), *map(float, words)])
        except ValueError as error:
            bad.append((number, str(error)))
    return np.array(rows).reshape(-1, FIELDS + 1), bad


def _jobs(rows: Array, hybrid: int | None) -> tuple[Trace, list[tuple[int, str]]]:
    """The usable jobs, and the line numbers of unusable rows with reasons."""
    number, table = rows[:, 0].astype(int), rows[:, 1:]
    nodes = np.where(table[:, WANTED] > 0, table[:, WANTED], table[:, USED])
    run = table[:, RUN]
    limit = np.maximum(np.where(table[:, LIMIT] > 0, table[:, LIMIT], run), run)
    reasons = {
        "its run time is not known": ~(run >= 0),
        "its number of nodes is not known": ~(nodes > 0),
        "its submission is not known": ~(table[:, SUBMIT] >= 0),
    }
    usable = ~np.logical_or.reduce(list(reasons.values()))
    bad = {int(n): why for why, mask in reasons.items() for n in number[mask]}
    order = np.argsort(table[usable, SUBMIT], kind="stable")
    trace = Trace(
        table[:, SUBMIT],
        nodes.astype(np.int64),
        run,
        limit,
        table[:, USER].astype(np.int64),
        None if hybrid is None else table[:, EXECUTABLE] == hybrid,
    )
    return trace.part(usable).part(order), list(bad.items())


def _header(lines: list[str], wanted: str) -> int | None:
    """The header's number for a name; None if there is none above 0."""
    for line in lines:
        if not line.startswith(";"):
            return None
        name, _, value = line[1:].partition(":")
        if name.strip() == wanted and value.split()[:1]:
            word = value.split()[0]
            return int(word) if word.isdecimal() and int(word) > 0 else None
    return None
