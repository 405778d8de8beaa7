"""Metrics for Prometheus: by device and account, never by user, job or task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from qtide.service.device.state import STATES
from qtide.service.task import Task

if TYPE_CHECKING:
    from qtide.service.device.device import ServedDevice

SECONDS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
LABELS = ("device", "account")


class Metrics:
    """Counts what happens; the present state is looked up on request."""

    def __init__(self) -> None:
        disable_created_metrics()  # the creation time of a series is of no use here
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
        self._waiting = Gauge("qtide_tasks_waiting", "Tasks waiting", ["device"], registry=registry)
        self._state = Gauge(
            "qtide_device_state", "1 for the present state", ["device", "state"], registry=registry
        )

    def accepted(self, task: Task) -> None:
        """A task is in the store."""
        self._accepted.labels(*_labels(task)).inc()

    def began(self, task: Task) -> None:
        """A task is on the device."""
        assert task.started is not None
        self._waits.labels(*_labels(task)).observe(max(0.0, task.started - task.submitted))

    def ended(self, task: Task) -> None:
        """A task is over."""
        self._tasks.labels(*_labels(task), str(task.state)).inc()
        self._qpu_seconds.labels(*_labels(task)).inc(task.used)
        if task.started is not None:
            self._executions.labels(*_labels(task)).observe(task.used)

    def text(self, devices: Iterable[ServedDevice]) -> bytes:
        """All metrics, in Prometheus's format."""
        for device in devices:
            self._waiting.labels(device.name).set(device.waiting)
            for state in STATES:
                self._state.labels(device.name, state).set(state == device.state)
        return generate_latest(self._registry)


def _labels(task: Task) -> tuple[str, str]:
    return task.device, task.caller.account
