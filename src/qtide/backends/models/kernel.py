"""The batch scheduler's hot loop: processes a whole trace of jobs in arrays, without objects.

Order within one moment: first, due jobs end; then submitted jobs are queued in trace order; then
hybrid jobs' requests are queued in order of arrival; then there is one scheduling pass. A pass
starts jobs from the head of the queue until one does not fit. This blocked job gets a reservation
at the shadow time: the earliest time at which enough nodes should be free, by the time limits of
the running jobs (jobs that should end at exactly that time count as ended). Later jobs start, in
queue order, if they fit now and either should end by the shadow time or need no more than the
nodes that are spare then. FIFO starts none of them. If nothing but submissions happened since the
last pass, only the new jobs can start, so a pass looks at them alone.

A job waits or runs in a slot. Arrays are named after the columns that they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from qtide.backends.models.trace import Array

Given = ParamSpec("Given")
Result = TypeVar("Result")


def compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Compile a function into its callers, as machine code that is cached on disk.

    Without reference counts: they would take most of the time, as each call passes ten arrays.
    """
    try:
        import numba  # optional: without it, the same code runs slowly
    except ImportError:
        return function
    options: dict[str, Any] = {"cache": True, "inline": "always", "_nrt": False}
    return cast("Callable[Given, Result]", numba.njit(**options)(function))


# the columns of `slot_times` and of `slot_counts`
RUN, LIMIT, EXPECTED, SUBMIT = range(4)
NODES, JOB, STATE, KIND, USER = range(5)
# states and kinds of slots
WAITING, HELD, RUNNING = range(3)
BACKGROUND, HYBRID = range(2)
# the numbers in `counts`; the last two are what the last pass left: whether a job is blocked, and
# the nodes that are spare at its shadow time
FREE, QUEUED, RUNS, ENDS, ROW, ROWS, LAST, SPARE, CHANGED, STARTED, EASY, GRANTED = range(12)
BLOCKED, EXTRA = 12, 13
# the numbers in `clock`: the current time, that of the next event, the blocked job's shadow time
NOW, NEXT, SHADOW = range(3)
# why `advance` returns: nothing more is due; the caller must read the starts; more slots are
# needed; more rows of the trace are needed; a hybrid job got its nodes
DONE, FULL, GROW, MORE, GRANT = range(5)


@compiled
def advance(  # noqa: C901, PLR0912 - one loop, compiled
    until: float,
    clock: Array,
    counts: Array,
    rows: Array,
    slot_times: Array,
    slot_counts: Array,
    spare: Array,
    queue: Array,
    expected: Array,
    end_times: Array,
    end_slots: Array,
    out: Array,
) -> int:
    """Process events up to and including `until`; return early if the caller must act."""
    while True:
        if counts[CHANGED]:
            if counts[STARTED] + counts[QUEUED] > len(out):
                return FULL
            times, ends = slot_times, end_times
            _pass(clock, counts, times, slot_counts, queue, expected, ends, end_slots, out)
            if counts[GRANTED]:
                return GRANT
        if counts[ROW] == counts[ROWS] and not counts[LAST]:
            return MORE
        moment = end_times[0] if counts[ENDS] else np.inf
        if counts[ROW] < counts[ROWS] and rows[counts[ROW], 0] < moment:
            moment = rows[counts[ROW], 0]
        clock[NEXT] = moment
        if moment > until or moment == np.inf:
            return DONE
        after = counts[ROW]
        while after < counts[ROWS] and rows[after, 0] <= moment:
            after += 1
        if after == counts[ROWS] and not counts[LAST]:
            return MORE  # rows of one moment must stay together
        if after - counts[ROW] > counts[SPARE]:
            return GROW
        clock[NOW] = moment
        while counts[ENDS] and end_times[0] <= moment:
            slot = _pop(counts, end_times, end_slots)
            counts[FREE] += slot_counts[slot, NODES]
            leave(slot, counts, slot_times, expected)
            spare[counts[SPARE]] = slot
            counts[SPARE] += 1
            counts[CHANGED] = 1
        known = counts[CHANGED] == 0 and counts[BLOCKED] == 1 and clock[SHADOW] > moment
        for row in range(counts[ROW], after):
            slot = enter(counts, spare, queue)
            slot_times[slot, SUBMIT] = rows[row, 0]
            slot_times[slot, RUN] = rows[row, 2]
            slot_times[slot, LIMIT] = rows[row, 3]
            slot_counts[slot, NODES] = int(rows[row, 1])
            slot_counts[slot, JOB] = int(rows[row, 4])
            slot_counts[slot, STATE] = WAITING
            slot_counts[slot, KIND] = BACKGROUND
            slot_counts[slot, USER] = int(rows[row, 5])
        new = after - counts[ROW]
        counts[ROW] = after
        if known and counts[STARTED] + new <= len(out):
            counts[CHANGED] = 0
            times, ends = slot_times, end_times
            _new(new, clock, counts, times, slot_counts, queue, expected, ends, end_slots, out)


@compiled
def enter(counts: Array, spare: Array, queue: Array) -> int:
    """Add a slot to the end of the queue and return it."""
    counts[SPARE] -= 1
    slot = int(spare[counts[SPARE]])
    queue[counts[QUEUED]] = slot
    counts[QUEUED] += 1
    counts[CHANGED] = 1
    return slot


@compiled
def _new(
    new: int,
    clock: Array,
    counts: Array,
    slot_times: Array,
    slot_counts: Array,
    queue: Array,
    expected: Array,
    end_times: Array,
    end_slots: Array,
    out: Array,
) -> None:
    """Start those of the `new` last jobs of the queue that may pass the blocked one."""
    if counts[EASY] == 0:
        return
    now, queued = clock[NOW], counts[QUEUED]
    kept = queued - new
    for place in range(queued - new, queued):
        slot = queue[place]
        nodes = slot_counts[slot, NODES]
        in_time = now + slot_times[slot, LIMIT] <= clock[SHADOW]
        if nodes <= counts[FREE] and (in_time or nodes <= counts[EXTRA]):
            if not in_time:
                counts[EXTRA] -= nodes
            _start(slot, now, counts, slot_times, slot_counts, expected, end_times, end_slots, out)
        else:
            queue[kept] = slot
            kept += 1
    counts[QUEUED] = kept


@compiled
def _pass(
    clock: Array,
    counts: Array,
    slot_times: Array,
    slot_counts: Array,
    queue: Array,
    expected: Array,
    end_times: Array,
    end_slots: Array,
    out: Array,
) -> None:
    """Run one scheduling pass."""
    counts[CHANGED] = counts[BLOCKED] = 0
    if counts[FREE] == 0:
        return
    now, free, queued = clock[NOW], counts[FREE], counts[QUEUED]
    enough = 1 if counts[EASY] else free + 1  # free nodes with which a job may pass a blocked one
    blocked, shadow, extra, kept = False, 0.0, 0, 0
    for place in range(queued):
        slot = queue[place]
        nodes = slot_counts[slot, NODES]
        starts = nodes <= free and slot_counts[slot, STATE] == WAITING
        if blocked and starts:
            in_time = now + slot_times[slot, LIMIT] <= shadow
            starts = in_time or nodes <= extra
            if starts and not in_time:
                extra -= nodes
        if starts:
            free -= nodes
            _start(slot, now, counts, slot_times, slot_counts, expected, end_times, end_slots, out)
            continue
        queue[kept] = slot
        kept += 1
        if not blocked and slot_counts[slot, STATE] == WAITING:
            blocked = True
            shadow, extra = _reservation(now, nodes, counts, slot_counts, slot_times, expected)
        if blocked and free < enough:
            if kept <= place:
                for left in range(place + 1, queued):
                    queue[kept] = queue[left]
                    kept += 1
            else:
                kept = queued
            break
    counts[QUEUED] = kept
    counts[BLOCKED], counts[EXTRA], clock[SHADOW] = blocked, extra, shadow


@compiled
def _reservation(
    now: float, nodes: int, counts: Array, slot_counts: Array, slot_times: Array, expected: Array
) -> tuple[float, int]:
    """The shadow time of the blocked job, and the number of nodes that are spare then."""
    shadow, free = np.inf, int(counts[FREE])
    for place in range(counts[RUNS]):
        slot = expected[place]
        end = slot_times[slot, EXPECTED]
        if end > shadow:
            break
        free += slot_counts[slot, NODES]
        if shadow == np.inf and free >= nodes:
            shadow = max(now, end)
    return shadow, free - nodes


@compiled
def _start(
    slot: int,
    now: float,
    counts: Array,
    slot_times: Array,
    slot_counts: Array,
    expected: Array,
    end_times: Array,
    end_slots: Array,
    out: Array,
) -> None:
    """Start a job; the end of a hybrid job is unknown."""
    counts[FREE] -= slot_counts[slot, NODES]
    slot_counts[slot, STATE] = RUNNING
    slot_times[slot, EXPECTED] = now + slot_times[slot, LIMIT]
    _join(slot, counts, slot_times, expected)
    if slot_counts[slot, KIND] == BACKGROUND:
        _push(now + slot_times[slot, RUN], slot, counts, end_times, end_slots)
        out[counts[STARTED], 0] = slot_counts[slot, JOB]
    else:
        counts[GRANTED] += 1
        out[counts[STARTED], 0] = -1.0 - slot
    out[counts[STARTED], 1] = now
    out[counts[STARTED], 2] = slot_times[slot, SUBMIT]
    out[counts[STARTED], 3] = slot_times[slot, RUN]
    out[counts[STARTED], 4] = slot_counts[slot, NODES]
    out[counts[STARTED], 5] = slot_counts[slot, USER]
    counts[STARTED] += 1


@compiled
def _place(end: float, counts: Array, slot_times: Array, expected: Array) -> int:
    """Index of the first running job that should end at `end` or later."""
    low, high = 0, int(counts[RUNS])
    while low < high:
        middle = (low + high) // 2
        if slot_times[expected[middle], EXPECTED] < end:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _join(slot: int, counts: Array, slot_times: Array, expected: Array) -> None:
    """Insert a job into the running jobs, which are sorted by expected end."""
    place = _place(slot_times[slot, EXPECTED], counts, slot_times, expected)
    for later in range(counts[RUNS], place, -1):
        expected[later] = expected[later - 1]
    expected[place] = slot
    counts[RUNS] += 1


@compiled
def leave(slot: int, counts: Array, slot_times: Array, expected: Array) -> None:
    """Remove a job from the running jobs."""
    place = _place(slot_times[slot, EXPECTED], counts, slot_times, expected)
    while expected[place] != slot:
        place += 1
    counts[RUNS] -= 1
    for later in range(place, counts[RUNS]):
        expected[later] = expected[later + 1]


@compiled
def _push(end: float, slot: int, counts: Array, end_times: Array, end_slots: Array) -> None:
    """Add a job to the heap of ends."""
    place = int(counts[ENDS])
    counts[ENDS] += 1
    while place > 0:
        parent = (place - 1) // 2
        if end_times[parent] <= end:
            break
        end_times[place], end_slots[place] = end_times[parent], end_slots[parent]
        place = parent
    end_times[place], end_slots[place] = end, slot


@compiled
def _pop(counts: Array, end_times: Array, end_slots: Array) -> int:
    """Remove the job that ends first from the heap of ends and return it."""
    first = int(end_slots[0])
    counts[ENDS] -= 1
    size = int(counts[ENDS])
    end, slot = end_times[size], end_slots[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and end_times[child + 1] < end_times[child]:
            child += 1
        if end_times[child] >= end:
            break
        end_times[place], end_slots[place] = end_times[child], end_slots[child]
        place = child
    end_times[place], end_slots[place] = end, slot
    return first
