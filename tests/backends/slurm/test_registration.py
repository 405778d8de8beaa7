"""Just after slurmctld has started, its nodes are unknown until they register."""

import asyncio
from typing import Any

import pytest

from qtide.backends.clusters.slurm import slurm_cluster
from qtide.core.errors import NotEnoughNodes


class Answers:
    """A Slurm whose sinfo says these things, one after the other; the last one for good."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    async def output(self, *_: str) -> str:
        return self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]


def size(slurm: Any) -> int:
    return asyncio.run(slurm_cluster._size(slurm, None))


def test_a_run_waits_for_nodes_that_have_yet_to_register(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_cluster, "LOOK", 0.0)
    unknown = "quantum|idle|1\nall*|unknown*|3"
    assert size(Answers(unknown, unknown, unknown, unknown, "all*|idle|3")) == 3


def test_nodes_that_take_no_work_are_refused_at_once() -> None:
    with pytest.raises(NotEnoughNodes, match="no node that takes work"):
        size(Answers("quantum|unknown|1\nall*|drained|3"))


def test_nodes_that_never_register_are_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_cluster, "LOOK", 0.0)
    monkeypatch.setattr(slurm_cluster, "REGISTRATION", 0.01)
    with pytest.raises(NotEnoughNodes, match="no node that takes work"):
        size(Answers("all*|unknown*|3"))
