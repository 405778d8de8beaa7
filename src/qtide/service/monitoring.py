"""Monitoring for operators: Prometheus metrics, and a log with one JSON object per line.

Metrics are labelled by device and account, never by user, job or task.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping

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
