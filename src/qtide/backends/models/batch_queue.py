"""A batch system's queue in virtual time: first come, first served, or EASY backfilling.

Background jobs come from a trace and are only rows of arrays. Hybrid jobs request nodes while the
clock stands still; the scheduling pass at the end of the moment decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

import numpy as np

from qtide.backends.models import kernel
from qtide.backends.models.trace import Array, Trace

SLOTS = 1024
STARTS = 4096

Started = Callable[[Array], object]
"""Called with started background jobs, one row each: number in the trace, start, submission, run
time, nodes and user."""
Interrupted = Callable[[Array, float], object]
"""Called with the row of a job that must restart, and the seconds that it still had to run."""


class BatchQueue:
    """`nodes` equal nodes behind one queue; only waiting and running jobs take memory."""

    def __init__(
        self,
        nodes: int,
        trace: Iterable[Trace] = (),
        started: Started = lambda *_: None,
        *,
        backfill: bool = True,
        interrupted: Interrupted = lambda *_: None,
    ) -> None:
        self.nodes = nodes
        self._chunks: Iterator[Trace] = iter(trace)
        self._started = started
        self._interrupted = interrupted
        self._numbered = 0
        self._clock = np.zeros(kernel.SHADOW + 1)
        self.quiet_until = -inf
        """Time before which nothing happens unless a hybrid job changes something."""
        self._counts = np.zeros(kernel.EXTRA + 1, dtype=np.int64)
        self._counts[kernel.FREE] = nodes
        self._counts[kernel.EASY] = backfill
        self._rows = np.zeros((0, 6))
        self._slot_times = np.zeros((0, 4))
        self._slot_counts = np.zeros((0, 5), dtype=np.int64)
        self._spare = np.zeros(0, dtype=np.int64)
        self._queue = np.zeros(0, dtype=np.int64)
        self._expected = np.zeros(nodes + 1, dtype=np.int64)
        self._end_times = np.zeros(nodes + 1)
        self._end_slots = np.zeros(nodes + 1, dtype=np.int64)
        self._out = np.zeros((STARTS, 6))
        self._grow(SLOTS)

    @property
    def free(self) -> int:
        """Number of free nodes."""
        return int(self._counts[kernel.FREE])

    @property
    def queued(self) -> int:
        """Number of waiting jobs."""
        return int(self._counts[kernel.QUEUED])

    @property
    def now(self) -> float:
        """Time of the last event."""
        return float(self._clock[kernel.NOW])

    def advance(self, until: float = inf) -> dict[int, float]:
        """Process events up to `until` or the first grant; return granted slots and their times.

        If nothing was granted, no event up to `until` is left.
        """
        granted: dict[int, float] = {}
        while not granted and until >= self.quiet_until:
            why = self._step(until)
            if self._counts[kernel.STARTED]:
                granted = self._read_starts()
            if why == kernel.GROW:
                self._grow(max(SLOTS, len(self._spare)))
            elif why == kernel.MORE:
                self._feed()
            elif why == kernel.DONE:
                self.quiet_until = float(self._clock[kernel.NEXT])
                break
        return granted

    def ask(self, nodes: int, limit: float, now: float, *, held: bool = False) -> int:
        """Queue a hybrid job's request and return its slot; a held request lets others pass."""
        if not self._counts[kernel.SPARE]:
            self._grow(len(self._spare))
        self._stir(now)
        slot = kernel.enter(self._counts, self._spare, self._queue)
        self._slot_times[slot] = (inf, limit, inf, now)
        state = kernel.HELD if held else kernel.WAITING
        self._slot_counts[slot] = (nodes, -1, state, kernel.HYBRID, -1)
        return int(slot)

    def look_again(self, slot: int, now: float, nodes: int | None = None) -> None:
        """Let a held request compete again, or let a request compete with fewer nodes."""
        self._stir(now)
        if nodes is not None:
            self._slot_counts[slot, kernel.NODES] = nodes
        self._slot_counts[slot, kernel.STATE] = kernel.WAITING

    def hold(self, slot: int, now: float) -> None:
        """Revoke a grant of this moment: requeue the request at the head, held."""
        self._requeue(slot, kernel.HELD, now)

    def interrupt(self, share: float, now: float) -> None:
        """Requeue at the head a background job whose node died; `share` (0 to 1) picks the node."""
        running = self._expected[: self._counts[kernel.RUNS]]
        running = running[self._slot_counts[running, kernel.KIND] == kernel.BACKGROUND]
        nodes = np.cumsum(self._slot_counts[running, kernel.NODES])
        slot = int(running[np.searchsorted(nodes, share * nodes[-1], side="right")])
        self._tell_interrupted(slot, now)
        self._end_no_longer(slot)
        self._requeue(slot, kernel.WAITING, now)

    def withdraw(self, slot: int, now: float) -> None:
        """Remove a request from the queue."""
        self._stir(now)
        queued = self.queued
        rest = self._queue[:queued][self._queue[:queued] != slot]
        self._queue[: len(rest)] = rest
        self._counts[kernel.QUEUED] = len(rest)
        self._vacate(slot)

    def give_back(self, slot: int, nodes: int, now: float) -> None:
        """Free some nodes of a hybrid job."""
        self._stir(now)
        self._slot_counts[slot, kernel.NODES] -= nodes
        self._counts[kernel.FREE] += nodes
        if self._slot_counts[slot, kernel.NODES] == 0:
            kernel.leave(slot, self._counts, self._slot_times, self._expected)
            self._vacate(slot)

    def resize(self, nodes: int, now: float) -> None:
        """Add free nodes, or remove them if `nodes` is negative."""
        self._stir(now)
        self.nodes += nodes
        self._counts[kernel.FREE] += nodes

    def _stir(self, now: float) -> None:
        """Request a scheduling pass at the end of this moment, as something has changed."""
        self._clock[kernel.NOW] = now
        self._counts[kernel.CHANGED] = 1
        self.quiet_until = -inf

    def upcoming(self) -> float:
        """Time of the next event known to the scheduler."""
        counts = self._counts
        if counts[kernel.CHANGED]:
            return self.now
        while counts[kernel.ROW] == counts[kernel.ROWS] and not counts[kernel.LAST]:
            self._feed()
        rows = self._rows[counts[kernel.ROW] : counts[kernel.ROWS]]
        submitted = float(rows[0, 0]) if len(rows) else inf
        return min(submitted, float(self._end_times[0]) if counts[kernel.ENDS] else inf)

    def _requeue(self, slot: int, state: int, now: float) -> None:
        """Move a running job back to the head of the queue."""
        self._stir(now)
        kernel.leave(slot, self._counts, self._slot_times, self._expected)
        self._counts[kernel.FREE] += self._slot_counts[slot, kernel.NODES]
        self._slot_counts[slot, kernel.STATE] = state
        queued = self.queued
        self._queue[1 : queued + 1] = self._queue[:queued].copy()
        self._queue[0] = slot
        self._counts[kernel.QUEUED] += 1

    def _end_no_longer(self, slot: int) -> None:
        """Remove a job from the heap of ends by sorting the rest, as a sorted array is a heap."""
        size = int(self._counts[kernel.ENDS])
        left = np.flatnonzero(self._end_slots[:size] != slot)
        left = left[np.argsort(self._end_times[left], kind="stable")]
        self._end_times[: size - 1] = self._end_times[left]
        self._end_slots[: size - 1] = self._end_slots[left]
        self._counts[kernel.ENDS] = size - 1

    def _tell_interrupted(self, slot: int, now: float) -> None:
        times, counts = self._slot_times[slot], self._slot_counts[slot]
        start = times[kernel.EXPECTED] - times[kernel.LIMIT]
        job, nodes, user = counts[kernel.JOB], counts[kernel.NODES], counts[kernel.USER]
        row = np.array([job, start, times[kernel.SUBMIT], times[kernel.RUN], nodes, user])
        self._interrupted(row, float(start + times[kernel.RUN] - now))

    def _step(self, until: float) -> int:
        return kernel.advance(
            until,
            self._clock,
            self._counts,
            self._rows,
            self._slot_times,
            self._slot_counts,
            self._spare,
            self._queue,
            self._expected,
            self._end_times,
            self._end_slots,
            self._out,
        )

    def _read_starts(self) -> dict[int, float]:
        """Report started background jobs; return the hybrid ones with their start times."""
        started = self._out[: self._counts[kernel.STARTED]].copy()
        granted = int(self._counts[kernel.GRANTED])
        self._counts[kernel.STARTED] = self._counts[kernel.GRANTED] = 0
        if not granted:
            self._started(started)
            return {}
        hybrid = started[:, 0] < 0
        if granted < len(started):
            self._started(started[~hybrid])
        return {int(-1 - slot): moment for slot, moment, *_ in started[hybrid].tolist()}

    def _feed(self) -> None:
        """Append the trace's next chunk to the remaining rows."""
        rest = self._rows[self._counts[kernel.ROW] :]
        chunk = next(self._chunks, None)
        if chunk is None:
            self._counts[kernel.LAST] = 1
        else:
            chunk.check(self.nodes)
            numbers = np.arange(self._numbered, self._numbered + len(chunk))
            self._numbered += len(chunk)
            columns = (chunk.submit, chunk.nodes, chunk.run, chunk.limit, numbers, chunk.user)
            rows = np.column_stack(columns)
            rest = np.vstack([rest, rows]) if len(rest) else rows
        self._rows = rest
        self._counts[kernel.ROW], self._counts[kernel.ROWS] = 0, len(rest)

    def _vacate(self, slot: int) -> None:
        self._spare[self._counts[kernel.SPARE]] = slot
        self._counts[kernel.SPARE] += 1

    def _grow(self, by: int) -> None:
        """Add `by` slots."""
        size = len(self._spare)
        self._slot_times = np.vstack([self._slot_times, np.zeros((by, 4))])
        self._slot_counts = np.vstack([self._slot_counts, np.zeros((by, 5), dtype=np.int64)])
        self._queue = np.append(self._queue, np.zeros(by, dtype=np.int64))
        left = self._spare[: self._counts[kernel.SPARE]]
        new = np.arange(size + by - 1, size - 1, -1)
        self._spare = np.zeros(size + by, dtype=np.int64)
        self._spare[: by + len(left)] = np.append(left, new)
        self._counts[kernel.SPARE] += by
        if len(self._out) < 2 * (size + by):
            started = self._out[: self._counts[kernel.STARTED]]
            self._out = np.zeros((2 * (size + by), 6))
            self._out[: len(started)] = started
