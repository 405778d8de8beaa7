"""Monitoring for operators: Prometheus metrics, a history of each device, and a log of JSON lines.

Metrics are labelled by device and account, never by user, job or task.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from qtide.service.device.calendar import STATES
from qtide.service.device.served_device import ServedDevice
from qtide.service.store import Database, Store
from qtide.service.task import ServiceTask, TaskState

SECONDS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
LABELS = ("device", "account")


class ServiceMetrics:
    """Counts events as they happen, and reads the current state on request."""

    def __init__(self) -> None:
        disable_created_metrics()  # creation times of series are useless here
        self._registry = registry = CollectorRegistry()
        self._tasks = Counter(
            "qtide_tasks_total", "Tasks by how they ended", (*LABELS, "status"), registry=registry
        )
        self._accepted = Counter(
            "qtide_tasks_accepted_total", "Tasks accepted", LABELS, registry=registry
        )
        self._qpu_seconds = Counter(
            "qtide_qpu_seconds_total", "Seconds of the device charged", LABELS, registry=registry
        )
        self._waits = Histogram(
            "qtide_queue_wait_seconds",
            "From acceptance to the device",
            LABELS,
            buckets=SECONDS,
            registry=registry,
        )
        self._executions = Histogram(
            "qtide_execution_seconds",
            "On the device",
            LABELS,
            buckets=SECONDS,
            registry=registry,
        )
        self._waiting = Gauge(
            "qtide_tasks_waiting",
            "Tasks waiting: for the device (queue), or for room in a quota (quota)",
            ["device", "why"],
            registry=registry,
        )
        self._state = Gauge(
            "qtide_device_state", "1 for the present state", ["device", "state"], registry=registry
        )

        self._refusals = Counter(
            "qtide_refusals_total",
            "Requests and connections refused, by status and reason",
            ("status", "reason"),
            registry=registry,
        )
        self._retries = Counter(
            "qtide_retries_total",
            "Tasks that wait again",
            ["device"],
            registry=registry,
        )
        self._restarts = Counter(
            "qtide_worker_restarts_total", "Workers lost", ["device"], registry=registry
        )
        self._shown: set[str] = set()
        """The devices that have gauges."""
        self.activity: dict[str, Activity] = {}
        """What each device did since the history was last written."""
        self.on_change: Callable[[ServiceTask], None] | None = None
        """Called with each task that changes, while somebody watches."""

    def refused(self, status: int, reason: str) -> None:
        """Count a refused request or connection."""
        self._refusals.labels(str(status), reason).inc()

    def accepted(self, task: ServiceTask) -> None:
        """Count a task that was stored."""
        self._accepted.labels(*_labels(task)).inc()
        self._changed(task)

    def began(self, task: ServiceTask) -> None:
        """Observe the wait of a task that began on the device."""
        assert task.started is not None
        wait = max(0.0, task.started - task.submitted)
        self._waits.labels(*_labels(task)).observe(wait)
        self._activity(task.device).began(task, wait)
        self._changed(task)

    def ended(self, task: ServiceTask) -> None:
        """Count a finished task, and what it used."""
        self._tasks.labels(*_labels(task), str(task.state)).inc()
        self._qpu_seconds.labels(*_labels(task)).inc(task.used)
        if task.started is not None:
            self._executions.labels(*_labels(task)).observe(task.used)
        self._activity(task.device).ended(task)
        self._changed(task)

    def retried(self, task: ServiceTask) -> None:
        """Count a task that waits again, because its device or the service stopped."""
        self._retries.labels(task.device).inc()
        self._changed(task)

    def restarted(self, device: str) -> None:
        """Count a worker that was lost and is restarted."""
        self._restarts.labels(device).inc()

    def totals(self) -> dict[str, float]:
        """Refusals, retries and restarts of workers since the service started."""
        found: dict[str, float] = {}
        for counter in (self._refusals, self._retries, self._restarts):
            for metric in counter.collect():
                found[metric.name.removeprefix("qtide_")] = sum(s.value for s in metric.samples)
        return found

    def _activity(self, device: str) -> Activity:
        if device not in self.activity:
            self.activity[device] = Activity()
        return self.activity[device]

    def _changed(self, task: ServiceTask) -> None:
        if self.on_change is not None:
            self.on_change(task)

    def look_at(
        self, devices: Iterable[ServedDevice], blocked: Mapping[str, int] | None = None
    ) -> None:
        """Note the present state of the devices, and how many of their tasks wait for a quota."""
        known = {device.name: device for device in devices}
        for gone in self._shown - known.keys():
            for why in ("queue", "quota"):
                self._waiting.remove(gone, why)
            for state in STATES:
                self._state.remove(gone, state)
        self._shown = set(known)
        for device in known.values():
            self._waiting.labels(device.name, "queue").set(device.waiting)
            self._waiting.labels(device.name, "quota").set((blocked or {}).get(device.name, 0))
            for state in STATES:
                self._state.labels(device.name, state).set(state == device.state)

    def text(self, *, accounts: bool = True) -> bytes:
        """All metrics in Prometheus's format; without `accounts`, summed over the accounts.

        With many accounts, this takes long; another thread may do it.
        """
        return generate_latest(self._registry if accounts else _Summed(self._registry))


class _Summed:
    """The metrics of a registry, summed over all accounts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics without their account label."""
        for metric in self._registry.collect():
            sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
            for sample in metric.samples:
                labels = tuple(each for each in sample.labels.items() if each[0] != "account")
                key = (sample.name, labels)
                sums[key] = sums.get(key, 0.0) + sample.value
            found = Metric(metric.name, metric.documentation, metric.type)
            found.samples = [Sample(name, dict(labels), v) for (name, labels), v in sums.items()]
            yield found


def _labels(task: ServiceTask) -> tuple[str, str]:
    return task.device, task.caller.account


CAUSES = ("busy", "nobody", "clients", "calibration", "down", "maintenance", "handover")
"""What a device's time went to: tasks; or idle because nobody wanted it, its clients computed, it
was calibrated, down or drained, or the next task was on its way to it."""
ENDS = ("done", "failed", "cancelled", "promised", "kept")
"""Tasks by how they ended; those that began under a promise, and those that began in time."""
TIMES = (*CAUSES, "wanted")
RECENT = 30.0
"""Seconds after its last answer for which a client counts as computing."""
TICK = 1.0
"""Seconds between two looks at the devices."""


@dataclass
class Period:
    """What a device did in some time."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By cause; and `wanted`, those in which the device was idle although tasks waited."""
    tasks: Tally[str] = field(default_factory=Tally)
    waits: Tally[int] = field(default_factory=Tally)
    """Tasks that began, by twice the binary logarithm of their wait in milliseconds."""
    waiting: int = 0
    """Tasks that waited at once, at most."""
    longest: float = 0.0
    """The longest wait in seconds."""

    def add(self, other: Period) -> None:
        """Add another period."""
        for cause, seconds in other.seconds.items():
            self.seconds[cause] += seconds
        self.tasks.update(other.tasks)
        self.waits.update(other.waits)
        self.waiting = max(self.waiting, other.waiting)
        self.longest = max(self.longest, other.longest)

    def wait(self, share: float) -> float | None:
        """The wait in seconds that a share of the tasks did not exceed; None without tasks.

        It is known to half a power of two, and never more than the longest.
        """
        left = share * self.waits.total()
        for power, tasks in sorted(self.waits.items()):
            left -= tasks
            if left <= 1e-9:
                return min(self.longest, math.pow(2.0, power / 2) / 1000)
        return None

    def as_dict(self) -> dict[str, Any]:
        """All figures, for clients."""
        return {
            "seconds": {cause: self.seconds[cause] for cause in CAUSES},
            "wanted": self.seconds["wanted"],
            "tasks": {end: self.tasks[end] for end in ENDS},
            "waiting": self.waiting,
            "wait": {"p50": self.wait(0.5), "p95": self.wait(0.95), "longest": self.longest},
        }

    def packed(self) -> bytes:
        """All figures in few bytes, times in milliseconds."""
        times = [round(1000 * self.seconds[each]) for each in TIMES]
        ends = [self.tasks[each] for each in ENDS]
        pairs = [each for pair in sorted(self.waits.items()) for each in pair]
        numbers = [*times, *ends, self.waiting, round(1000 * self.longest), *pairs]
        return b"".join(map(_in_few_bytes, numbers))

    @staticmethod
    def unpacked(data: bytes) -> Period:
        """Read what `packed` wrote."""
        numbers = iter(_from_few_bytes(bytes(data)))
        seconds = defaultdict(float, {each: next(numbers) / 1000 for each in TIMES})
        ends = Tally({each: next(numbers) for each in ENDS})
        waiting, longest = next(numbers), next(numbers) / 1000
        return Period(
            seconds, ends, Tally(dict(zip(numbers, numbers, strict=True))), waiting, longest
        )


def _in_few_bytes(number: int) -> bytes:
    """A number in groups of seven bits, lowest first; all but the last have the highest bit set."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _from_few_bytes(data: bytes) -> list[int]:
    numbers, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    return numbers


class Activity(Period):
    """What a device does now: the running tasks count as they run, not only at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = -math.inf
        """When a client last got an answer."""
        self.state = ""
        self.since = 0.0
        """Since when the device is in its state."""
        self._running: dict[str, tuple[float, float]] = {}
        """When each running task began, and the seconds of it that are counted already."""
        self._looked: float | None = None
        self._busy = 0.0
        """Seconds of tasks that ended since the last look."""

    def began(self, task: ServiceTask, wait: float) -> None:
        """Count a task that began."""
        assert task.started is not None
        self._running[task.id] = task.started, 0.0
        self.waits[math.ceil(2 * math.log2(max(1.0, 1000 * wait)))] += 1
        self.longest = max(self.longest, wait)
        if task.latest is not None:
            self.tasks["promised"] += 1
            self.tasks["kept"] += task.started <= task.latest

    def ended(self, task: ServiceTask) -> None:
        """Count a task that ended, and the seconds of its last attempt that are not counted yet."""
        self.tasks[str(task.state)] += 1
        if task.state is TaskState.DONE:
            self.answered = task.ended or self.answered
        began, counted = self._running.pop(task.id, (math.inf, 0.0))
        last = min(task.used, max(0.0, (task.ended or 0.0) - began))
        self._busy += max(0.0, last - counted)

    def look(self, device: ServedDevice, now: float, *, holders: bool) -> None:
        """Attribute the time since the last look; `holders`: jobs hold a slot of the service."""
        if self.state != device.state:
            self.state, self.since = device.state, now
        last, self._looked = self._looked, now
        if last is None or now <= last:
            return
        busy, self._busy = self._busy, 0.0
        for task, (began, counted) in self._running.items():
            if not device.running:
                break  # their ends are being stored, and count then
            more = max(0.0, now - max(began, last))
            self._running[task] = began, counted + more
            busy += more
        busy = min(busy, now - last)
        idle = now - last - busy
        self.seconds["busy"] += busy
        self.seconds[self._cause(device, now, holders=holders)] += idle
        if device.waiting:
            self.seconds["wanted"] += idle
        self.waiting = max(self.waiting, device.waiting)

    def take(self) -> Period:
        """Return everything counted since the last call, and begin anew."""
        taken = Period(self.seconds, self.tasks, self.waits, self.waiting, self.longest)
        self.seconds, self.tasks, self.waits = defaultdict(float), Tally(), Tally()
        self.waiting, self.longest = 0, 0.0
        return taken

    def _cause(self, device: ServedDevice, now: float, *, holders: bool) -> str:
        why = device.why_waiting()
        if why != "queue":
            return "down" if why == "starting" else why
        if device.waiting:
            return "handover"
        return "clients" if holders or now - self.answered < RECENT else "nobody"


KEPT = {5: 3600, 60: 86_400, 600: 31 * 86_400, 3600: 2 * 366 * 86_400}
"""Seconds for which the history is kept at each resolution, itself in seconds."""
FINEST = min(KEPT)
INSERT = "INSERT INTO history VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
Moments = dict[tuple[str, int], Period]
"""Periods by device and beginning."""


class DeviceHistory:
    """What each device did, at resolutions that get coarser with age, kept in the store."""

    def __init__(
        self,
        store: Store,
        activity: dict[str, Activity],
        devices: Mapping[str, ServedDevice],
        clock: Callable[[], float],
        holders: Callable[[], Collection[Any]],
    ) -> None:
        self._store = store
        self._activity = activity
        self._devices = devices
        self._clock = clock
        self._holders = holders
        self._at: int | None = None

    async def look(self) -> None:
        """Look at the devices; write a row for each when the period of the finest has passed."""
        now, holders = self._clock(), bool(self._holders())
        names = list(self._devices)
        for name in names:
            activity = self._activity.setdefault(name, Activity())
            activity.look(self._devices[name], now, holders=holders)
        at = int(now // FINEST) * FINEST
        last, self._at = self._at, at
        if last is None or at == last:
            return
        rows = [(FINEST, last, name, self._activity[name].take().packed()) for name in names]
        await self._store.write(lambda db: _add_rows(db, rows, now if at % 60 == 0 else None))

    async def read(self, device: str, since: float, until: float, step: int) -> list[Any]:
        """The periods of a device that begin in a span, as pairs of beginning and `Period`."""
        found: Moments = await self._store.look(lambda db: moments(db, step, since, until, device))
        return [(at, period) for (_, at), period in sorted(found.items(), key=lambda i: i[0][1])]


def resolution(since: float, now: float, most: int = 2000) -> int:
    """The finest resolution that reaches back far enough, with at most so many periods."""
    for step, kept in KEPT.items():
        if now - since <= kept and (now - since) / step <= most:
            return step
    return max(KEPT)


def moments(
    db: Database, step: int, since: float, until: float, device: str | None = None
) -> Moments:
    """Read the periods of a resolution; the newest are summed up from finer ones."""
    words = "SELECT device, at, figures FROM history WHERE resolution = ? AND at >= ? AND at < ?"
    terms = (step, math.floor(since / step) * step, math.ceil(until))
    rows = db.execute(words, terms)
    found = {(row[0], row[1]): Period.unpacked(row[2]) for row in rows if device in (None, row[0])}
    finer = max((each for each in KEPT if each < step), default=None)
    if finer is None:
        return found
    begin = max((at + step for _, at in found), default=math.floor(since / step) * step)
    for (name, at), period in moments(db, finer, begin, until, device).items():
        found.setdefault((name, at // step * step), Period()).add(period)
    return found


def _add_rows(db: Database, rows: Iterable[Any], sum_up: float | None) -> None:
    """Add rows; at whole minutes, also sum up what is complete, and delete what is too old."""
    db.executemany(INSERT, rows)
    if sum_up is None:
        return
    for step in sorted(KEPT)[1:]:
        end = math.floor(sum_up / step) * step
        last = db.execute("SELECT max(at) FROM history WHERE resolution = ?", (step,)).fetchone()[0]
        made = moments(db, step, 0 if last is None else last + step, end)
        db.executemany(
            INSERT, [(step, at, name, period.packed()) for (name, at), period in made.items()]
        )
    for step, kept in KEPT.items():
        oldest = math.floor(sum_up) - kept
        db.execute("DELETE FROM history WHERE resolution = ? AND at < ?", (step, oldest))


KNOWN = {*vars(logging.makeLogRecord({})), "message", "color_message"}
"""Attributes of every log record; a caller of the logger added any others."""


class JsonLines(logging.Formatter):
    """Formats each log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record's message and the fields added to it."""
        extra = {name: value for name, value in vars(record).items() if name not in KNOWN}
        words = {"time": round(record.created, 3), "level": record.levelname.lower()}
        words |= {"event": record.getMessage()} | extra
        if record.exc_info:
            words["traceback"] = self.formatException(record.exc_info)
        return json.dumps(words, default=str)
