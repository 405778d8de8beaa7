"""The mean of the last few values: what happened lately is what to expect next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, NamedTuple


class Recent:
    """Remembers so many values."""

    def __init__(self, most: int) -> None:
        self._values: deque[float] = deque(maxlen=most)

    def add(self, value: float) -> None:
        """Take in one more; the oldest is forgotten."""
        self._values.append(value)

    def mean(self) -> float:
        """Their mean; 0 while nothing is known."""
        return sum(self._values) / len(self._values) if self._values else 0.0

    def values(self) -> list[float]:
        """All of them, the oldest first."""
        return list(self._values)

    def clear(self) -> None:
        """Forget all of them."""
        self._values.clear()


Place = tuple[str, int]
"""The label of a phase, and the number of one of its tasks."""

MOST = 2000
"""How many durations are remembered for later runs, the last ones."""


class Durations:
    """The last duration of each task, by its place."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: dict[Place, float] = {}
        self._under_way: dict[Place, float | None] = {}

    def last(self, key: Place) -> float:
        """How long it took last time; 0 if it never ended."""
        return self._last.get(key, 0.0)

    def known(self, key: Place) -> float | None:
        """The same, or None if it never ended."""
        return self._last.get(key)

    def estimate(self, key: Place) -> float | None:
        """The same; of what never ended and is under way, twice as long as it has taken so far."""
        began = self._under_way.get(key)
        return self._last.get(key, None if began is None else 2 * (self._now() - began))

    def expect(self, keys: Iterable[Place]) -> None:
        """These are to be done, and have not begun."""
        self._under_way |= dict.fromkeys(keys)

    def begin(self, key: Place) -> None:
        """It begins now, maybe again."""
        self._under_way[key] = self._now()

    def learn(self, key: Place, besides: float = 0.0) -> None:
        """It has just ended well: so long it takes, without what it was not busy with itself."""
        began = self._under_way.get(key)
        if began is not None:
            self._last[key] = max(0.0, self._now() - began - besides)

    def end(self, key: Place) -> None:
        """It is no longer to be done, whatever became of it."""
        self._under_way.pop(key, None)

    def remaining(self) -> float:
        """How long until all that is to be done should be, if it all goes on at once.

        What is done for the first time lasts as long again as it has until now.
        """
        now, last, longest = self._now(), self._last, 0.0
        for key, began in self._under_way.items():
            elapsed = 0.0 if began is None else now - began
            left = last.get(key, 2 * elapsed) - elapsed
            longest = max(longest, left)
        return longest

    def as_json(self) -> list[list[Any]]:
        """The last durations of what ended."""
        newest = islice(reversed(self._last.items()), MOST)
        return [[label, number, round(seconds, 6)] for (label, number), seconds in newest]

    def recall(self, known: Iterable[Any]) -> None:
        """Begin with the durations of an earlier run."""
        for label, number, seconds in known:
            self._last[str(label), int(number)] = float(seconds)


class Outlook(NamedTuple):
    """How many are before it, and when it should start and end."""

    position: int
    start: float
    end: float


SEEN = 16
"""How many past waits count."""


class Slips:
    """Compares waits as they were expected with those that came of them."""

    def __init__(self) -> None:
        self._of_all = _Waits()
        self._own: dict[Hashable, _Waits] = {}

    def add(self, who: Hashable, expected: float, waited: float) -> None:
        """A wait is over."""
        self._of_all.add(expected, waited)
        self._own.setdefault(who, _Waits()).add(expected, waited)

    def corrected(self, who: Hashable, expected: float) -> float:
        """How long a wait should really be."""
        return expected * self._own.get(who, self._of_all).factor()

    def forget(self, who: Hashable) -> None:
        """Nobody will ask for its own waits again."""
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
"""How many past waits count for the expected one."""


@dataclass(eq=False)
class Wait:
    """A request that stands in the queue."""

    since: float
    announced: float = 0.0
    """How long it should stand there in all, if the cluster's scheduler says so."""


class QueuedBlock:
    """A block in which a request stands in the queue (a generator would take twice as long)."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def __enter__(self) -> Wait:
        self._wait = self._waits.begin()
        return self._wait

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._waits.end(self._wait, granted=kind is None)


class Waits:
    """Learns from requests that are granted, and looks at those that still wait."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._standing: dict[Wait, None] = {}  # the oldest first
        self._recent = Recent(RECENT)

    def standing(self) -> QueuedBlock:
        """A request stands in the queue; if it leaves without an error, it was granted."""
        return QueuedBlock(self)

    def begin(self) -> Wait:
        """A request begins to stand in the queue."""
        wait = Wait(self._now())
        self._standing[wait] = None
        return wait

    def end(self, wait: Wait, *, granted: bool) -> None:
        """It stands there no longer."""
        del self._standing[wait]
        if granted:
            self._recent.add(self._now() - wait.since)

    def expected(self, *, announced: bool = False) -> float:
        """As long as those that wait now have waited, or as the last ones did.

        With `announced`, the scheduler's own word counts as well.
        """
        now = self._now()
        waited = [
            max(now - each.since, each.announced if announced else 0.0) for each in self._standing
        ]
        return max([*waited, self._recent.mean()])

    def seen(self) -> list[float]:
        """The last waits, and the present one that is longer than all of them were."""
        recent = self._recent.values()
        if self._standing:
            longest = self._now() - next(iter(self._standing)).since
            if longest > max(recent, default=0.0):
                recent.append(longest)
        return recent

    def forget(self) -> None:
        """Let the waits of earlier jobs no longer count."""
        self._recent.clear()


WIDEST = 2000
"""Of a phase with more tasks than this, a later run is not told."""
SEPARATOR = "\n"
"""Between the names of phases in a row, where they are kept as one text."""
HORIZON = 16
"""The most phases that are looked ahead."""
CONTEXT = 4
"""How many phases in a row tell what comes next: `wide, merge, wide, merge` may be a cycle."""


class PhaseShape(NamedTuple):
    """What is known of a phase beforehand: what it asks for, and which tasks need one node."""

    name: str
    label: str = ""
    singles: tuple[int, ...] = ()
    quantum: bool = False


class Need(NamedTuple):
    """A classical phase to come: how many seconds after the present phase, and for how long."""

    after: float
    lasts: float
    shape: PhaseShape


class Phases:
    """Learns phases by what they ask for, and which one follows which."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._followed: dict[tuple[str, ...], PhaseShape] = {}
        """What came last after one phase, and after up to so many in a row."""
        self._seconds: dict[str, float] = {}
        self._last: dict[str, tuple[str, ...]] = {}
        self._widest = PhaseShape("")

    @contextmanager
    def during(self, shape: PhaseShape, key: str) -> Iterator[None]:
        """Learn from a phase: what it came after, and how long it took."""
        branch = key.rpartition(".")[0]
        before = self._last.get(branch, ())
        for number in range(len(before)):
            self._followed[before[number:]] = shape
        self._last[branch] = (*before, shape.name)[-CONTEXT:]
        if not shape.quantum and len(shape.singles) >= len(self._widest.singles):
            self._widest = shape
        began = self._now()
        yield
        self._seconds[shape.name] = self._now() - began

    def widest(self) -> PhaseShape:
        """The classical phase with the most tasks so far; one without tasks if there was none."""
        return self._widest

    def needs(self, key: str) -> list[Need]:
        """The classical phases after the one at `key`, as far as the past tells: one cycle."""
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
        """What came after the same phases; after the longest part of them that was ever seen."""
        for number in range(len(context)):
            if context[number:] in self._followed:
                return self._followed[context[number:]]
        return None

    def as_json(self) -> dict[str, Any]:
        """What followed what, and how long phases took."""
        followed = {
            SEPARATOR.join(names): shape
            for names, shape in self._followed.items()
            if len(shape.singles) <= WIDEST
        }
        return {"followed": followed, "seconds": self._seconds}

    def recall(self, known: Mapping[str, Any]) -> None:
        """Begin with what followed what in an earlier run."""
        for before, (name, label, singles, quantum) in known["followed"].items():
            self._followed[tuple(before.split(SEPARATOR))] = PhaseShape(
                name, label, tuple(singles), quantum
            )
        self._seconds |= known["seconds"]


Known = Mapping[str, Any]
"""What a job has learnt of its program, as JSON."""

STARTS = 4
"""How many past starts and releases of nodes count for the next."""


class Forecast:
    """Tasks, phases and nodes of a job; how long its requests wait is for the cluster to say."""

    def __init__(
        self,
        now: Callable[[], float],
        expected_wait: Callable[[int], float],
        waits_seen: Callable[[], list[float]] = list,
        *,
        warm: bool = False,
    ) -> None:
        self.tasks = Durations(now)
        self.phases = Phases(now)
        self._starts = Recent(STARTS)
        self._releases = Recent(STARTS)
        self._expected_wait = expected_wait
        self._waits_seen = waits_seen
        self._warm = warm
        """Whether a node that is given back and asked for again need not start anew."""

    def node_started(self, seconds: float) -> None:
        """A node that was granted could work after so long."""
        if not self._warm:
            self._starts.add(seconds)

    def start(self) -> float:
        """How long a node takes until it can work, once it is granted."""
        return self._starts.mean()

    def node_released(self, seconds: float) -> None:
        """A node that was given back was held for so much longer."""
        self._releases.add(seconds)

    def turnaround(self) -> float:
        """How long a node that is given back and asked for again is held without work."""
        return self.start() + self._releases.mean()

    def leads(self) -> list[float]:
        """How long it has taken lately from asking for a node until it could work."""
        starts, waits = self._starts.values(), self._waits_seen()
        if any(starts):
            waits = [wait + start for wait, start in zip(waits, cycle(starts))]
        return waits or [self.lead(1)]

    def lead(self, nodes: int) -> float:
        """How long it takes from asking for nodes until they can work."""
        return self._expected_wait(nodes) + self.start()

    def as_json(self) -> Known:
        """What holds for the next run of the program as well."""
        return {"tasks": self.tasks.as_json(), "phases": self.phases.as_json()}

    def recall(self, known: Known) -> None:
        """Begin with what an earlier run has learnt."""
        self.tasks.recall(known["tasks"])
        self.phases.recall(known["phases"])
