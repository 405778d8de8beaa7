"""Monitoring for operators: Prometheus metrics, a log and an audit trail of JSON lines.

Metrics are labelled by device and account, never by user, job or task.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
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

from qtide.service.device.device_queue import STATES
from qtide.service.device.served_device import ServedDevice
from qtide.service.task import ServiceTask

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

    def refused(self, status: int, reason: str) -> None:
        """Count a refused request or connection."""
        self._refusals.labels(str(status), reason).inc()

    def accepted(self, task: ServiceTask) -> None:
        """Count a task that was stored."""
        self._accepted.labels(*_labels(task)).inc()

    def began(self, task: ServiceTask) -> None:
        """Observe the wait of a task that began on the device."""
        assert task.started is not None
        self._waits.labels(*_labels(task)).observe(max(0.0, task.started - task.submitted))

    def ended(self, task: ServiceTask) -> None:
        """Count a finished task, and what it used."""
        self._tasks.labels(*_labels(task), str(task.state)).inc()
        self._qpu_seconds.labels(*_labels(task)).inc(task.used)
        if task.started is not None:
            self._executions.labels(*_labels(task)).observe(task.used)

    def text(
        self,
        devices: Iterable[ServedDevice],
        blocked: Mapping[str, int] | None = None,
        *,
        accounts: bool = True,
    ) -> bytes:
        """All metrics in Prometheus's format; without `accounts`, summed over the accounts.

        `blocked` is the number of tasks per device that wait for a quota.
        """
        for gauge in (self._waiting, self._state):
            gauge.clear()  # devices may have gone
        for device in devices:
            self._waiting.labels(device.name, "queue").set(device.waiting)
            self._waiting.labels(device.name, "quota").set((blocked or {}).get(device.name, 0))
            for state in STATES:
                self._state.labels(device.name, state).set(state == device.state)
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


ORIGIN: ContextVar[str] = ContextVar("origin", default="the service")
"""Where the present request comes from; the gate sets it."""
AUDIT = "audit.jsonl"


class AuditTrail:
    """Who did what to the service, from where and why: one JSON object per line, only appended.

    It never has a secret: tokens are named by the beginning of their digests.
    """

    MOST = 10 * 2**20
    """Bytes beyond which a file is closed and another one begun."""
    FILES = 50
    """Closed files to keep."""
    QUIET = 60.0
    """Seconds in which the same refusal of the same actor is recorded once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        """None in a simulation, which records nothing."""
        self._refused: dict[tuple[str, str, str], float] = {}

    def record(self, event: str, actor: str, reason: str = "", **more: Any) -> None:
        """Append a line; a full disk must not stop the service."""
        if self._folder is None:
            return
        words = {"time": round(time.time(), 3), "event": event, "actor": actor}
        words |= {"origin": ORIGIN.get(), "reason": reason} | more
        line = json.dumps(words, default=str) + "\n"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._folder / AUDIT, how, 0o600)
            try:
                os.write(file, line.encode())
                full = os.fstat(file).st_size > self.MOST
            finally:
                os.close(file)
            if full:
                self._rotate()
        except OSError as error:
            logging.getLogger(__name__).warning("not audited", extra={"why": str(error)})

    def refused(self, event: str, actor: str, reason: str) -> None:
        """Record a refusal; of an actor who repeats it, the first within `QUIET` seconds."""
        key, now = (event, actor, reason), time.monotonic()
        self._refused = {each: at for each, at in self._refused.items() if now - at < self.QUIET}
        if key not in self._refused and len(self._refused) < 1000:
            self._refused[key] = now
            self.record(event, actor, reason)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries, oldest first; a line that was cut off is skipped."""
        for file in [*self._closed(), self._folder / AUDIT] if self._folder is not None else ():
            with suppress(FileNotFoundError), file.open() as lines:
                for line in lines:
                    with suppress(ValueError):
                        yield json.loads(line)

    def _closed(self) -> list[Path]:
        return sorted(self._folder.glob("audit-*.jsonl")) if self._folder is not None else []

    def _rotate(self) -> None:
        assert self._folder is not None
        closed = self._folder / f"audit-{time.time_ns()}.jsonl"
        (self._folder / AUDIT).rename(closed)
        for old in self._closed()[: -self.FILES]:
            old.unlink()
