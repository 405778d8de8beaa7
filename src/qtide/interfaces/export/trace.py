"""Runs and devices as traces that Perfetto shows (ui.perfetto.dev), in the Trace Event Format.

On one track, slices must not overlap partly. So what overlaps, such as tasks that share a node,
gets tracks of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qtide.core.errors import UsageError
from qtide.core.files import write_whole
from qtide.core.ledger import Interval, Note
from qtide.runs.folder import RunFolder

TraceEvent = dict[str, Any]
MICROSECONDS = 1e6
CAUSES = ("busy", "nobody", "clients", "handover", "calibration", "maintenance", "down")


class TraceBuilder:
    """The events of a trace, with numbered processes and tracks."""

    def __init__(self, since: float) -> None:
        self.events: list[TraceEvent] = []
        self._since = since
        self._processes: dict[str, int] = {}
        self._tracks: dict[tuple[int, str], list[tuple[int, float]]] = {}
        self._last = 0

    def span(
        self, process: str, track: str, name: str, start: float, end: float, **args: Any
    ) -> None:
        """Add a slice; it goes to the first track of that name that is free again."""
        pid = self._process(process)
        rows = self._tracks.setdefault((pid, track), [])
        free = next((at for at, (_, until) in enumerate(rows) if until <= start), None)
        if free is None:
            free = len(rows)
            rows.append((self._track(pid, track if free == 0 else f"{track} {free + 1}"), 0.0))
        tid = rows[free][0]
        rows[free] = tid, max(start, end)
        where = {"pid": pid, "tid": tid, "ts": self._at(start)}
        length = max(0.0, end - start) * MICROSECONDS
        self.events.append(
            {"ph": "X", "name": name, "cat": track, "dur": round(length, 3), "args": args} | where
        )

    def mark(self, process: str, name: str, at: float, **args: Any) -> None:
        """Add a moment, shown across all tracks of a process."""
        pid = self._process(process)
        where = {"pid": pid, "tid": 0, "ts": self._at(at), "s": "p"}
        self.events.append({"ph": "i", "name": name, "cat": "decision", "args": args} | where)

    def count(self, process: str, name: str, at: float, values: Mapping[str, float]) -> None:
        """Add values of a counter, drawn as an area."""
        where = {"pid": self._process(process), "tid": 0, "ts": self._at(at)}
        self.events.append({"ph": "C", "name": name, "args": dict(values)} | where)

    def write(self, file: Path) -> Path:
        """Write the trace."""
        whole = {"displayTimeUnit": "ms", "traceEvents": self.events}
        # Perfetto shows escaped characters as they are written
        text = json.dumps(whole, ensure_ascii=False)
        write_whole(file, text.encode(errors="replace"))
        return file

    def _at(self, moment: float) -> float:
        return round((moment - self._since) * MICROSECONDS, 3)

    def _process(self, name: str) -> int:
        if name not in self._processes:
            pid = self._processes[name] = len(self._processes) + 1
            words = {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0}
            self.events.append(words | {"args": {"name": name}})
        return self._processes[name]

    def _track(self, pid: int, name: str) -> int:
        self._last += 1
        words = {"ph": "M", "pid": pid, "tid": self._last, "ts": 0}
        self.events.append(words | {"name": "thread_name", "args": {"name": name}})
        order = {"name": "thread_sort_index", "args": {"sort_index": self._last}}
        self.events.append(words | order)
        return self._last


def trace_run(run: RunFolder, file: Path) -> Path:
    """Write the ledger of a run, finished or not."""
    spans = run.intervals()
    if not spans:
        raise UsageError(f"{run.name} has no ledger yet; run it first")
    return _built(spans, run.notes()).write(file)


def _built(spans: Iterable[Interval], notes: Iterable[Note]) -> TraceBuilder:
    """Tracks in the order in which a reader wants them: the run, phases, nodes, QPU, queues."""
    kinds = ("run", "phase", "held", "starting", "busy", "wait")
    ordered = sorted(spans, key=lambda span: (kinds.index(span.what), span.lane, span.start))
    made = TraceBuilder(min(span.start for span in ordered))
    for span in ordered:
        own = span.what in ("run", "phase")
        track = span.lane if own else f"{span.lane} {span.what}"
        args: dict[str, Any] = {"open_ended": True} if span.open_ended else {}
        args |= {"key": span.key} if span.key else {}
        made.span(span.job, track, span.label or span.what, span.start, span.end, **args)
    for note in notes:
        why = {"why": note.why} if note.why else {}
        made.mark(note.job, f"{note.what} {note.lane}", note.at, **note.figures, **why)
    return made


def trace_device(
    name: str, tasks: Iterable[Mapping[str, Any]], history: Mapping[str, Any], file: Path
) -> Path:
    """Write what a device of the service did: its tasks, their waits, and why it was idle."""
    known = sorted(tasks, key=lambda task: float(task["submitted"]))
    times = [float(task["submitted"]) for task in known]
    times += [float(each["at"]) for each in history["periods"]]
    if not times:
        raise UsageError(f"{name} has no history in that time")
    made = TraceBuilder(min(times))
    ran = [task for task in known if task["started"] is not None and task["ended"] is not None]
    for task in sorted(ran, key=lambda each: float(each["started"])):
        title = task["name"] or task["id"][:8]
        args = {key: task[key] for key in ("id", "user", "account", "job", "state", "attempts")}
        made.span(name, "device", title, task["started"], task["ended"], **args)
    for task in known:
        begun = task["started"] or task["ended"]
        if begun is not None:
            title = task["name"] or task["id"][:8]
            made.span(name, "queue", title, task["submitted"], begun, user=task["user"])
    step = float(history["resolution"])
    for period in history["periods"]:
        shares = {cause: round(period["seconds"][cause] / step, 4) for cause in CAUSES}
        made.count(name, "share of time", period["at"], shares)
        made.count(name, "tasks waiting", period["at"], {"tasks": period["waiting"]})
    return made.write(file)
