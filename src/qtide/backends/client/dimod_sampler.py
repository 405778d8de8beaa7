"""The service as a `dimod.Sampler`: change one line to run an annealer program on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import dimod

from qtide.backends.client.client import HOLD, Client, RemoteTask

PARAMETERS: dict[str, list[str]] = {
    "num_reads": ["num_reads_range"],
    "seed": [],
    "label": [],
    "priority": [],
    "max_wait": [],
    "key": [],
}


class DimodSampler(dimod.Sampler):  # type: ignore[misc, name-defined]  # dimod is typed in part
    """One device that takes binary quadratic models."""

    def __init__(self, client: Client, device: str) -> None:
        self._client = client
        self._device = device

    @cached_property
    def properties(self) -> Mapping[str, Any]:
        """The device's properties, as the service reports them."""
        found: dict[str, Any] = self._client.started_device(self._device)["properties"]
        most = found.get("most", {}).get("shots")
        return found if most is None else found | {"num_reads_range": [1, most]}

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of `sample`, each with the properties relevant to it."""
        return PARAMETERS

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        num_reads: int | None = None,
        seed: int | None = None,
        label: str = "",
        priority: int = 0,
        max_wait: float | None = None,
        key: str | None = None,
        **parameters: Any,
    ) -> dimod.SampleSet:
        """Return samples, best first; `info` has the task's id and times in microseconds.

        The same `key` with the same model gives the same task, also after the program was killed.
        """
        self.remove_unknown_kwargs(**parameters)
        model, labels = bqm.relabel_variables_as_integers(inplace=False)
        task = self._client.submit(
            model,
            self._device,
            shots=num_reads,
            seed=seed,
            name=label,
            priority=priority,
            max_wait=max_wait,
            key=key,
            wait=HOLD,
        )
        samples: dimod.SampleSet = task.result()
        samples.relabel_variables(labels)
        samples.info.update(task_id=task.id, timing=_timing(task))
        return samples


def _timing(task: RemoteTask) -> dict[str, int]:
    """The time on the device and in the queue, named as D-Wave does."""
    response = task.response
    started = response["ended"] if response["started"] is None else response["started"]
    return {
        "qpu_access_time": round(1e6 * response["qpu_seconds"]),
        "queue_time": round(1e6 * (started - response["submitted"])),
    }
