"""Forecasts from recent history: task durations, queue waits, and the order of phases."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from math import sqrt
from operator import add
from typing import Any, NamedTuple


class Recent:
    """Keeps the last `most` values."""

    def __init__(self, most: int) -> None:
        self._values: tuple[float, ...] = ()
        self._most = most
        self._mean = 0.0

    def add(self, value: float) -> None:
        """Add a value, dropping the oldest if full."""
        values = (*self._values, value)[-self._most :]
        if values != self._values:
            self._values, self._mean = values, sum(values) / len(values)

    def mean(self) -> float:
        """Mean of the values; 0 if there are none."""
        return self._mean

    def values(self) -> tuple[float, ...]:
        """All values, oldest first; the same object until they change."""
        return self._values

    def clear(self) -> None:
        """Drop all values."""
        self._values, self._mean = (), 0.0


Place = tuple[str, int]
"""The label of a phase and the number of one of its tasks."""

MOST = 2000
"""Maximum number of recent durations kept for later runs."""


class Durations:
    """Last duration of each task, by place."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: dict[Place, float] = {}
        self._under_way: dict[Place, float | None] = {}
        self._begun: dict[str, float] = {}
        """When the first task of each phase began, by the phase's label."""

    def last(self, key: Place) -> float:
        """Last duration of a task; 0 if it never ended."""
        return self._last.get(key, 0.0)

    def known(self, key: Place) -> float | None:
        """Last duration of a task; None if it never ended."""
        return self._last.get(key)

    def estimate(self, key: Place) -> float | None:
        """Last duration of a task; if none, twice its elapsed time; None if it never began."""
        began = self._under_way.get(key)
        return self._last.get(key, None if began is None else 2 * (self._now() - began))

    def expect(self, keys: Iterable[Place]) -> None:
        """Register tasks that are to run but have not begun."""
        self._under_way |= dict.fromkeys(keys)

    def begin(self, key: Place) -> None:
        """Record that a task begins now, possibly again."""
        self._under_way[key] = self._now()
        self._begun.setdefault(key[0], self._now())

    def first_begin(self, label: str) -> float | None:
        """When the first task of a phase began, and forget it; None if none began."""
        return self._begun.pop(label, None)

    def learn(self, key: Place, besides: float = 0.0) -> None:
        """Record the duration of a task that ends now, less `besides` seconds not its own."""
        began = self._under_way.get(key)
        if began is not None:
            self._last[key] = max(0.0, self._now() - began - besides)

    def record(self, key: Place, seconds: float) -> None:
        """Record the duration of a task that was measured elsewhere."""
        self._last[key] = seconds

    def learn_size(self, name: str, nodes: int, seconds: float) -> None:
        """Record how long a function took on a number of nodes that was chosen for it."""
        self._last[f"{name} on", nodes] = seconds

    def best_size(self, name: str, sizes: range, time_weight: float, charge: float = 1.0) -> int:
        """Choose a number of nodes: where time and node-seconds, as weighed, should cost least.

        `charge` is what the site charges for a second of such a node.

        Until two sizes are known, try a middle one and the largest. Then a size that was never
        tried is expected to take the time of Amdahl's law, through the known ones.
        """
        seconds = self.by_size(name, sizes)
        if not seconds or len(sizes) == 1:
            return sizes[round(sqrt(len(sizes))) - 1]
        if len(seconds) == 1:
            return sizes[-1] if sizes[-1] not in seconds else sizes[0]

        def cost(nodes: int) -> float:
            return (time_weight + (1 - time_weight) * charge * nodes) * seconds[nodes]

        return min(sizes, key=cost)

    def by_size(self, name: str, sizes: range) -> dict[int, float]:
        """What `learn_size` recorded; of two sizes or more, Amdahl's law says all others."""
        known = {n: self._last[f"{name} on", n] for n in sizes if (f"{name} on", n) in self._last}
        if len(known) < 2:
            return known
        serial, parallel = amdahl(known)
        return {n: known.get(n, serial + parallel / n) for n in sizes}

    def end(self, key: Place) -> None:
        """Unregister a task, whatever its outcome."""
        self._under_way.pop(key, None)

    def remaining(self) -> float:
        """Expected seconds until all registered tasks are done, if all run at once.

        A task that never ended before is assumed to take twice its elapsed time.
        """
        now, last, longest = self._now(), self._last, 0.0
        for key, began in self._under_way.items():
            elapsed = 0.0 if began is None else now - began
            left = last[key] - elapsed if key in last else elapsed
            longest = max(longest, left)
        return longest

    def as_json(self) -> list[list[Any]]:
        """Last durations for JSON, newest first."""
        newest = islice(reversed(self._last.items()), MOST)
        return [[label, number, round(seconds, 6)] for (label, number), seconds in newest]

    def recall(self, known: Iterable[Any]) -> None:
        """Load the durations of an earlier run."""
        for label, number, seconds in known:
            self._last[str(label), int(number)] = float(seconds)


def amdahl(known: Mapping[int, float]) -> tuple[float, float]:
    """Fit seconds = serial + parallel / nodes to at least two known sizes; neither is negative."""
    shares = [1 / nodes for nodes in known]
    mean_share, mean = sum(shares) / len(shares), sum(known.values()) / len(known)
    spread = sum((share - mean_share) ** 2 for share in shares)
    pairs = zip(shares, known.values(), strict=True)
    slope = sum((share - mean_share) * (seconds - mean) for share, seconds in pairs) / spread
    parallel = min(max(0.0, slope), mean / mean_share)
    return max(0.0, mean - parallel * mean_share), parallel


class Outlook(NamedTuple):
    """Position in a queue, and the expected start and end."""

    position: int
    start: float
    end: float


SEEN = 16
"""Number of past waits considered."""


class Slips:
    """Corrects expected waits by how past waits compared with their forecasts."""

    def __init__(self) -> None:
        self._of_all = _Waits()
        self._own: dict[Hashable, _Waits] = {}

    def add(self, who: Hashable, expected: float, waited: float) -> None:
        """Record a finished wait with its forecast."""
        self._of_all.add(expected, waited)
        self._own.setdefault(who, _Waits()).add(expected, waited)

    def corrected(self, who: Hashable, expected: float) -> float:
        """Expected wait, corrected by the past waits of `who`, or else of all."""
        return expected * self._own.get(who, self._of_all).factor()

    def forget(self, who: Hashable) -> None:
        """Forget the waits of `who`."""
        self._own.pop(who, None)


class _Waits:
    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=SEEN)

    def add(self, expected: float, waited: float) -> None:
        self._seen.append((expected, waited))

    def factor(self) -> float:
        expected = sum(each for each, _ in self._seen)
        waited = sum(each for _, each in self._seen)
        return max(1.0, waited / expected) if expected else 1.0


RECENT = 16
"""Number of past waits considered for the expected wait."""


@dataclass(eq=False)
class Wait:
    """A queued request."""

    since: float
    announced: float = 0.0
    """Total wait announced by the cluster's scheduler, if any."""


class QueuedBlock:
    """Context in which a request is queued (a generator would take twice as long)."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def __enter__(self) -> Wait:
        self._wait = self._waits.begin()
        return self._wait

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._waits.end(self._wait, granted=kind is None)


class Waits:
    """Estimates waits from granted requests and from those still queued."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._standing: dict[Wait, None] = {}  # oldest first
        self._recent = Recent(RECENT)

    def standing(self) -> QueuedBlock:
        """Queue a request for the duration of a block; without an error, it counts as granted."""
        return QueuedBlock(self)

    def begin(self) -> Wait:
        """Record that a request enters the queue."""
        wait = Wait(self._now())
        self._standing[wait] = None
        return wait

    def end(self, wait: Wait, *, granted: bool) -> None:
        """Record that a request leaves the queue."""
        del self._standing[wait]
        if granted:
            self._recent.add(self._now() - wait.since)

    def expected(self, *, announced: bool = False) -> float:
        """Expected wait: the longest current wait or the mean of recent ones, whichever is longer.

        With `announced`, the scheduler's own estimates count as well.
        """
        now = self._now()
        waited = [
            max(now - each.since, each.announced if announced else 0.0) for each in self._standing
        ]
        return max([*waited, self._recent.mean()])

    def seen(self) -> tuple[float, ...]:
        """Recent waits, plus the longest current wait if it exceeds them all.

        The same object until they change.
        """
        recent = self._recent.values()
        for oldest in self._standing:
            longest = self._now() - oldest.since
            return (*recent, longest) if longest > max(recent, default=0.0) else recent
        return recent

    def forget(self) -> None:
        """Drop the waits of earlier jobs."""
        self._recent.clear()


WIDEST = 2000
"""Phases with more tasks than this are not kept for later runs."""
SEPARATOR = "\n"
"""Separator between phase names that are stored as one string."""
HORIZON = 16
"""Maximum number of phases to look ahead."""
CONTEXT = 4
"""Number of past phases that predict the next: `wide, merge, wide, merge` may be a cycle."""


class PhaseShape(NamedTuple):
    """What is known of a phase in advance: what it asks for, and its one-node tasks."""

    name: str
    label: str = ""
    singles: tuple[int, ...] = ()
    quantum: bool = False
    shares: tuple[float, ...] = ()
    """For each one-node task, the part of the node that it takes; empty if all take whole nodes."""
    kinds: tuple[str, ...] = ()
    """For each one-node task, the kind of its node; empty if all have the usual kind."""
    together: tuple[str, ...] = ()
    """For each node of the tasks that run on several, its kind."""

    @property
    def width(self) -> int:
        """Number of nodes on which it runs at once, if no tasks share one."""
        return len(self.singles) + len(self.together)


class Need(NamedTuple):
    """An upcoming classical phase: seconds from the end of the current one, and duration."""

    after: float
    lasts: float
    shape: PhaseShape


class Phases:
    """Learns how long phases take and which one follows which, by what they ask for."""

    def __init__(self, now: Callable[[], float], tasks: Durations) -> None:
        self._now = now
        self._tasks = tasks
        self._followed: dict[tuple[str, ...], PhaseShape] = {}
        """The phase that last followed each sequence of one or more phases."""
        self._seconds: dict[str, float] = {}
        self._last: dict[str, tuple[str, ...]] = {}
        self._widest = PhaseShape("")

    @contextmanager
    def during(self, shape: PhaseShape, key: str) -> Iterator[None]:
        """Learn what a phase follows and how long it takes, from its first task's begin on.

        Before that it waits for nodes, which it need not do the next time.
        """
        branch = key.rpartition(".")[0]
        before = self._last.get(branch, ())
        for number in range(len(before)):
            self._followed[before[number:]] = shape
        self._last[branch] = (*before, shape.name)[-CONTEXT:]
        if not shape.quantum and shape.width >= self._widest.width:
            self._widest = shape
        began = self._now()
        self._tasks.first_begin(shape.label)
        yield
        begun = self._tasks.first_begin(shape.label)
        self._seconds[shape.name] = self._now() - (began if begun is None else begun)

    def widest(self) -> PhaseShape:
        """The classical phase that ran on the most nodes so far; an empty one if none ran."""
        return self._widest

    def needs(self, key: str) -> list[Need]:
        """Classical phases expected after the one at `key`, for at most one cycle."""
        first = context = self._last.get(key.rpartition(".")[0], ())
        found: list[Need] = []
        after = 0.0
        for _ in range(HORIZON):
            following = self._following(context)
            if following is None:
                break
            lasts = self._seconds.get(following.name, 0.0)
            if not following.quantum:
                found.append(Need(after, lasts, following))
            after += lasts
            context = (*context, following.name)[-CONTEXT:]
            if context[-len(first) :] == first:
                break
        return found

    def _following(self, context: tuple[str, ...]) -> PhaseShape | None:
        """The phase that followed the longest known suffix of these phases."""
        for number in range(len(context)):
            if context[number:] in self._followed:
                return self._followed[context[number:]]
        return None

    def as_json(self) -> dict[str, Any]:
        """The order and durations of phases, for JSON."""
        followed = {
            SEPARATOR.join(names): shape
            for names, shape in self._followed.items()
            if len(shape.singles) <= WIDEST
        }
        return {"followed": followed, "seconds": self._seconds}

    def recall(self, known: Mapping[str, Any]) -> None:
        """Load the order and durations of phases from an earlier run."""
        for before, (name, label, singles, quantum, *later) in known["followed"].items():
            # earlier versions knew only whole nodes of one kind
            self._followed[tuple(before.split(SEPARATOR))] = PhaseShape(
                name, label, tuple(singles), quantum, *map(tuple, later)
            )
        self._seconds |= known["seconds"]


Known = Mapping[str, Any]
"""What a job has learnt about its program, as JSON."""

STARTS = 4
"""Number of past node starts and releases considered."""


class Forecast:
    """Forecasts for a job's tasks, phases and nodes; the cluster supplies the queue waits."""

    def __init__(
        self,
        now: Callable[[], float],
        expected_wait: Callable[[int], float],
        waits_seen: Callable[[], tuple[float, ...]] = tuple,
        *,
        warm: bool = False,
    ) -> None:
        self._now = now
        self.tasks = Durations(now)
        self.phases = Phases(now, self.tasks)
        self._starts = Recent(STARTS)
        self._releases = Recent(STARTS)
        self._expected_wait = expected_wait
        self._waits_seen = waits_seen
        self._warm = warm
        """Whether a node that is released and requested again need not start anew."""
        self._leads: tuple[Any, Any, tuple[float, ...]] = (None, None, ())
        """Starts and waits, and the lead times made of them."""

    def of_kind(
        self, expected_wait: Callable[[int], float], waits_seen: Callable[[], tuple[float, ...]]
    ) -> Forecast:
        """The forecast for nodes of another kind, which wait in a queue of their own."""
        made = Forecast(self._now, expected_wait, waits_seen, warm=self._warm)
        made.tasks, made.phases = self.tasks, self.phases
        return made

    def node_started(self, seconds: float) -> None:
        """Record the seconds from a node's grant until it could work."""
        if not self._warm:
            self._starts.add(seconds)

    def start(self) -> float:
        """Expected seconds from a node's grant until it can work."""
        return self._starts.mean()

    def node_released(self, seconds: float) -> None:
        """Record the seconds a released node was still held."""
        self._releases.add(seconds)

    def turnaround(self) -> float:
        """Seconds a node is held without work when it is released and requested again."""
        return self.start() + self._releases.mean()

    def leads(self) -> tuple[float, ...]:
        """Recent times from requesting a node until it could work; sorted.

        The same object until they change: strategies ask for them at every decision.
        """
        starts, waits = self._starts.values(), self._waits_seen()
        if not waits:
            return (self.lead(1),)
        if self._leads[0] is not starts or self._leads[1] is not waits:
            leads = map(add, waits, cycle(starts or (0.0,)))
            self._leads = (starts, waits, tuple(sorted(leads)))
        return self._leads[2]

    def lead(self, nodes: int) -> float:
        """Expected seconds from requesting nodes until they can work."""
        return self._expected_wait(nodes) + self.start()

    def as_json(self) -> Known:
        """What also applies to later runs of the program."""
        return {"tasks": self.tasks.as_json(), "phases": self.phases.as_json()}

    def recall(self, known: Known) -> None:
        """Load what an earlier run has learnt."""
        self.tasks.recall(known["tasks"])
        self.phases.recall(known["phases"])
