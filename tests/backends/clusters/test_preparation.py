"""Agents that import what earlier tasks needed, with real agents that start for every grant."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from qtide.backends.clusters import link
from qtide.backends.clusters.cluster import NodeRequest
from qtide.backends.clusters.local import LocalCluster, LocalOptions
from qtide.core.errors import NodeUnusable
from qtide.core.job import JobContext, Preparation
from qtide.core.ledger import Interval, Ledger
from qtide.core.metrics import measure
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from tests.backends.works import call
from tests.core.invariant import check


def loaded(*names: str) -> list[str]:
    """Which of these modules the agent had before; the others it imports now."""
    had = [name for name in names if name in sys.modules]
    for name in names:
        __import__(name)
    return had


class Lab:
    """A job on a cluster of one node."""

    def __init__(self, folder: Path, cluster: LocalCluster, known: dict[str, float]) -> None:
        self.cluster = cluster
        ledger = Ledger("job", cluster.world.now)
        self.job = JobContext("job", ledger, Values(folder), preparation=Preparation(known))

    async def on_a_new_node(self, function: Callable[..., Any], *args: Any, times: int = 1) -> Any:
        allocation = await self.cluster.request(self.job, 1)
        try:
            works = [call(self.job, function, *args, key=str(n)) for n in range(times)]
            return [await allocation.nodes[0].run(work) for work in works][-1]
        finally:
            await allocation.release()


def play(
    folder: Path,
    main: Callable[[Lab], Coroutine[Any, Any, Any]],
    known: dict[str, float] | None = None,
    options: LocalOptions = LocalOptions(cold=True),  # noqa: B008 - frozen
    scale: float = 1.0,
) -> Any:
    async def whole() -> Any:
        cluster = LocalCluster(RealWorld(scale), 1, options)
        try:
            return await main(Lab(folder / "values", cluster, known or {}))
        finally:
            await cluster.close()

    return asyncio.run(asyncio.wait_for(whole(), 60))


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes modules that agents can import."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)

    return write


def test_a_new_node_has_imported_what_earlier_tasks_needed(tmp_path: Path) -> None:
    async def main(lab: Lab) -> list[list[str]]:
        return [await lab.on_a_new_node(loaded, "wave", "numpy") for _ in range(2)]

    first, second = play(tmp_path, main)
    assert first == []
    assert second == ["wave", "numpy"]


def test_a_warm_node_outlives_its_grant(tmp_path: Path) -> None:
    async def main(lab: Lab) -> list[list[str]]:
        await lab.on_a_new_node(loaded, "wave")
        lab.job.preparation.failed()  # so that nothing is prepared
        return [await lab.on_a_new_node(loaded, "wave")]

    assert play(tmp_path, main, options=LocalOptions()) == [["wave"]]
    assert play(tmp_path, main) == [[]]


def test_imports_are_booked_as_starting_and_the_rest_as_busy(
    tmp_path: Path, modules: Callable[..., None]
) -> None:
    modules(slow="import time\ntime.sleep(0.3)")

    async def main(lab: Lab) -> tuple[Any, ...]:
        await lab.on_a_new_node(loaded, "slow", times=2)
        first = lab.job.ledger.intervals()
        await lab.on_a_new_node(loaded, "slow")
        return first, lab.job.ledger.intervals()[len(first) :], lab.job.preparation

    first, second, preparation = play(tmp_path, main, scale=0.5)  # a second takes half of one
    in_task = [span for span in first if span.what == "starting" and span.label == "loaded"]
    assert len(in_task) == 1
    assert in_task[0].seconds >= 0.6
    assert measure(first).nodes_starting >= 0.6
    assert not [span for span in second if span.what == "starting" and span.label]
    assert measure(second).nodes_starting >= 0.6
    assert preparation.seconds >= 0.6
    whole = Interval("job", "run", "driver", 0, second[-1].end + 1)
    assert check([whole, *first, *second], nodes=1, slots=0, slack=1e-3) == []


def test_a_module_that_cannot_be_imported_hinders_no_other(
    tmp_path: Path, modules: Callable[..., None]
) -> None:
    modules(leaving="import sys\nsys.exit(3)", broken="raise ValueError")

    async def main(lab: Lab) -> Any:
        return await lab.on_a_new_node(loaded, "wave")

    assert play(tmp_path, main, dict.fromkeys(["leaving", "broken", "missing", "wave"], 0.1)) == [
        "wave"
    ]


def test_a_module_that_kills_its_agent_is_not_prepared_again(
    tmp_path: Path, modules: Callable[..., None]
) -> None:
    modules(deadly="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")

    async def main(lab: Lab) -> tuple[list[str], list[str]]:
        return await lab.on_a_new_node(loaded, "wave"), lab.job.preparation.modules

    had, known = play(tmp_path, main, {"wave": 0.1, "deadly": 0.1})
    assert had == []
    assert "deadly" not in known
    assert "wave" in known


def test_a_module_that_hangs_is_given_up(
    tmp_path: Path, modules: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    modules(hanging="import time\ntime.sleep(600)")
    monkeypatch.setattr(link, "PREPARATION_LIMIT", 0.1)

    async def main(lab: Lab) -> list[str]:
        allocation = await lab.cluster.grant(NodeRequest(lab.job, 1))
        with pytest.raises(NodeUnusable):
            await allocation.ready()
        await allocation.release()
        monkeypatch.setattr(link, "PREPARATION_LIMIT", 60.0)
        await lab.on_a_new_node(loaded, "wave")
        return lab.job.preparation.modules

    assert "hanging" not in play(tmp_path, main, {"hanging": 0.1})


def loaded_with(variable: str, name: str) -> bool:
    """Whether the agent had a module before, which is then imported in another environment."""
    os.environ[variable] = "1"
    return bool(loaded(name))


def test_a_module_that_a_task_imports_in_an_environment_of_its_own_is_left_to_it(
    tmp_path: Path, modules: Callable[..., None]
) -> None:
    modules(setting="import os\nos.environ['BY_A_MODULE'] = '1'", early="", late="")

    async def main(lab: Lab) -> tuple[bool, list[str], float]:
        await lab.on_a_new_node(loaded, "setting", "early")
        await lab.on_a_new_node(loaded_with, "BY_A_TASK", "late")
        had = await lab.on_a_new_node(loaded_with, "BY_A_TASK", "late")
        return (
            had,
            lab.job.preparation.modules[-2:],
            measure(lab.job.ledger.intervals()).nodes_starting,
        )

    had, known, starting = play(tmp_path, main)
    assert not had
    assert known == ["setting", "early"]
    assert starting > 0


def test_a_failed_import_within_a_task_is_told_as_ever(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.on_a_new_node(loaded, "no_such_module")

    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught:
        play(tmp_path, main)
    assert not any("imports.py" in note for note in caught.value.__notes__)
