"""A device in a worker of a run: it answers as it would here, and may be killed at any time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import dimod
import pytest

from qtide.backends.devices.device import DeviceFailed, WorkerLost, choice
from qtide.backends.devices.runner import Runner

MODEL = dimod.BinaryQuadraticModel({"a": -1, "b": -2, "c": -1}, {"ab": 3, "bc": 3}, 0, "BINARY")
FOR_EVER = "annealer,sweeps=1000000000"
LIMIT = 60.0


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, LIMIT))


def alive(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


async def busy(runner: Runner) -> int:
    """The worker's process, once it has computed for a while."""
    await runner.ready()
    pid = runner.pid
    assert pid is not None
    began = _cpu(pid)
    async with asyncio.timeout(LIMIT):
        while _cpu(pid) < began + 10:
            await asyncio.sleep(0.02)
    return pid


def _cpu(pid: int) -> int:
    """Its time on a processor, in hundredths of a second."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def test_a_worker_answers_as_the_device_does_here() -> None:
    async def there() -> Any:
        runner = Runner(choice("annealer"))
        try:
            return await runner.solve(MODEL, 50, 2**64 - 5)
        finally:
            await runner.close()

    assert run(there()) == choice("annealer").device.solve(MODEL, 50, 2**64 - 5)


def test_a_worker_that_dies_with_a_payload_is_replaced() -> None:
    async def main() -> None:
        runner = Runner(choice(FOR_EVER))
        solving = asyncio.create_task(runner.solve(MODEL, 1, 0))
        first = await busy(runner)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="the process of the annealer ended while it had"):
            await solving
        assert not runner.is_ready
        await runner.ready()
        second = runner.pid
        assert second != first and alive(second)
        await runner.close()
        assert not alive(second)

    run(main())


def test_a_payload_that_is_given_up_ends_its_worker() -> None:
    async def main() -> None:
        runner = Runner(choice(FOR_EVER))
        solving = asyncio.create_task(runner.solve(MODEL, 1, 0))
        pid = await busy(runner)
        solving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await solving
        assert not alive(pid) and not runner.is_ready
        await runner.close()

    run(main())


def test_an_answer_that_takes_too_long_is_refused() -> None:
    async def main() -> None:
        runner = Runner(choice(f"{FOR_EVER},limit=0.2"))
        with pytest.raises(DeviceFailed, match=r"not answer within 0.2 s.*annealer,limit=0.4"):
            await runner.solve(MODEL, 1, 0)
        assert not runner.is_ready
        await runner.close()

    run(main())


class Unlucky(Runner):
    """Its first worker is killed while it starts."""

    starts = 0

    async def _start(self) -> None:
        self.starts += 1
        if self.starts == 1:
            raise WorkerLost("killed")
        await super()._start()


def test_a_worker_that_dies_as_it_starts_is_replaced() -> None:
    async def main() -> None:
        runner = Unlucky(choice("burst"))
        runner.start()
        await runner.ready()
        assert runner.is_ready and runner.starts == 2
        await runner.close()

    run(main())


def test_a_start_can_be_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        runner = Runner(choice("burst"), tmp_path / "device.log")
        runner.start()
        await asyncio.sleep(0)
        await runner.close()
        assert not runner.is_ready
        await Runner(choice("burst")).close()  # one that was never started

    run(main())


def test_a_device_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "qiskit").mkdir()
    (tmp_path / "qiskit" / "__init__.py").write_text("raise ImportError('no Qiskit here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    async def main() -> None:
        runner = Runner(choice("star"))
        try:
            await runner.ready()
        finally:
            await runner.close()

    with pytest.raises(WorkerLost, match=r"star needs a package: no Qiskit here; .*qtide\[gate\]"):
        run(main())
