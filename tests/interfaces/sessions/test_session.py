"""Sessions on real nodes: an executor, a QPU, a journal, and one sentence for what cannot be."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_EXCEPTION,
    BrokenExecutor,
    Future,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from contextlib import suppress
from pathlib import Path
from typing import Any

import dimod
import pytest

import qtide
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError, UsageError
from qtide.runs.folder import RunFolder
from tests.interfaces.sessions import calls

SIMULATED: dict[str, Any] = {"cluster": "simulated:2"}
LOCAL: dict[str, Any] = {"cluster": "local:2"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[qtide.Session]:
    """A session for tests that change nothing: its nodes start once."""
    runs = tmp_path_factory.mktemp("runs")
    with qtide.session(cluster="local:2", strategy="static", runs=runs) as session:
        yield session


def test_it_is_an_executor(shared: qtide.Session) -> None:
    assert shared.submit(calls.square, 3).result(30) == 9
    futures = [shared.submit(calls.square, number) for number in range(6)]
    assert {each.result() for each in as_completed(futures, 30)} == {0, 1, 4, 9, 16, 25}
    assert not wait(futures, 30).not_done
    assert list(shared.map(calls.square, (n for n in range(5)), timeout=30)) == [0, 1, 4, 9, 16]
    assert list(shared.map(pow, [2, 3], [3, 2, 1])) == [8, 9]
    assert list(shared.map(calls.square, [])) == []


def test_it_runs_commands(shared: qtide.Session, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("3\n1\n")
    done = shared.run("sort", "{data}", reads=[tmp_path / "data"], stdout="sorted")
    assert done.files["sorted"].read_text() == "1\n3\n"
    assert done.files["sorted"].is_relative_to(shared.run.folder)
    started = [shared.run.start("echo", number) for number in range(4)]
    assert [each.result(30).output for each in started] == ["0\n", "1\n", "2\n", "3\n"]
    with pytest.raises(qtide.CommandFailed, match="exit code 2"):
        shared.run("sh", "-c", "exit 2")
    with pytest.raises(UsageError, match="write a program"):
        shared.start_command(qtide.command("true").on(2))


def test_exceptions_are_raised_as_they_are(shared: qtide.Session) -> None:
    future = shared.submit(calls.refuse, 3)
    with pytest.raises(ValueError, match="no 3") as raised:
        future.result(30)
    assert "in the task refuse on node" in "".join(raised.value.__notes__)
    assert isinstance(future.exception(), ValueError)
    done = wait([future, shared.submit(calls.square, 1)], 30, FIRST_EXCEPTION).done
    assert future in done


def test_ten_thousand_futures_and_one_that_fails_among_short_ones(shared: qtide.Session) -> None:
    futures = [shared.submit(calls.square, number) for number in range(10_000)]
    assert sum(each.result(60) for each in futures) == sum(n * n for n in range(10_000))
    mixed = [shared.submit(calls.refuse if n == 70 else calls.square, n) for n in range(100)]
    assert [n for n, each in enumerate(mixed) if each.exception(60)] == [70]


def test_a_result_that_cannot_be_pickled_gets_a_sentence(shared: qtide.Session) -> None:
    with pytest.raises(TypeError, match=r"lock object at .* cannot be pickled"):
        shared.submit(calls.lock).result(30)
    among = list(shared.map(calls.square, range(100), chunksize=10))
    assert among[-1] == 99 * 99
    futures = [shared.submit(calls.lock if n == 5 else calls.square, n) for n in range(50)]
    assert [n for n, each in enumerate(futures) if each.exception(30)] == [5]


def test_an_argument_that_cannot_be_pickled_harms_no_other_call(shared: qtide.Session) -> None:
    given = [threading.Lock() if n == 5 else n for n in range(60)]
    futures = [shared.submit(calls.taken, each) for each in given]
    assert [n for n, each in enumerate(futures) if each.exception(30)] == [5]
    with pytest.raises(TypeError, match=r"^taken or its arguments cannot be pickled, so no node"):
        futures[5].result()


def test_a_session_is_not_passed_to_a_task(shared: qtide.Session) -> None:
    with pytest.raises(UsageError, match="a session cannot be passed to a task"):
        shared.submit(print, shared).result(30)


def test_a_session_within_a_task_is_refused(shared: qtide.Session) -> None:
    with pytest.raises(UsageError, match="a task is on a node already"):
        shared.submit(calls.nested).result(30)


def test_threads_of_the_script_share_it(shared: qtide.Session) -> None:
    def ask(number: int) -> int:
        return shared.submit(calls.square, number).result(30)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(20))) == [n * n for n in range(20)]


def test_virtual_time_has_one_thread_and_each_thread_may_have_its_own() -> None:
    def own(number: int) -> set[float]:
        with qtide.session(**SIMULATED) as session:
            futures = [session.submit(_busy, number + n) for n in range(3)]
            return {each.result() for each in as_completed(futures, 30)}

    with ThreadPoolExecutor(3) as threads, qtide.session(**SIMULATED) as session:
        future = session.submit(_busy, 1)
        for use in (
            lambda: session.submit(_busy, 2),
            future.result,
            lambda: list(wait([future])[0]),
        ):
            with pytest.raises(UsageError, match="only the thread that opened it can use it"):
                threads.submit(use).result(30)
        assert list(threads.map(own, range(9), timeout=60)) == [{n, n + 1, n + 2} for n in range(9)]
        assert future.result() == 1


def test_a_fork_is_told_whose_it_is(shared: qtide.Session) -> None:
    def child(pipe: Any) -> None:
        try:
            shared.submit(calls.square, 1)
        except UsageError as error:
            pipe.send(str(error))

    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    process.start()
    assert here.poll(30)
    assert "belongs to the process that opened it" in here.recv()
    process.join(30)


def test_a_lost_node_is_replaced(here: Path) -> None:
    with qtide.session(**LOCAL) as session:
        assert session.submit(calls.kill_node, str(here / "flag")).result(60) == "done"


def test_a_call_that_kills_its_nodes_harms_no_call_that_travels_with_it() -> None:
    with qtide.session(**LOCAL) as session:
        assert len(list(session.map(calls.kill_node_at, range(20), [-1] * 20))) == 20
        futures = [session.submit(calls.kill_node_at, number, 3) for number in range(20)]
        assert [n for n, each in enumerate(futures) if each.exception(60)] == [3]


def test_two_sessions_at_once() -> None:
    with qtide.session(**LOCAL) as one, qtide.session(**SIMULATED) as other:
        futures = [one.submit(calls.square, 2), other.submit(calls.square, 3)]
        assert [each.result(30) for each in futures] == [4, 9]
    assert len(qtide.list_runs()) == 2


def test_where_an_event_loop_is_running() -> None:
    async def notebook() -> int:
        with qtide.session(**LOCAL) as session:
            return session.submit(calls.square, 4).result(30)

    assert asyncio.run(notebook()) == 16


def test_an_error_in_the_block_gives_everything_back(here: Path) -> None:
    session = qtide.session(**LOCAL, name="cut")
    with pytest.raises(KeyError), session:
        future = session.submit(calls.wait_for, str(here / "never"))
        session.flush()
        raise KeyError("mine")
    assert isinstance(future.exception(10), QtideError)
    assert session.run.state == "failed"
    assert not any(span.open_ended for span in RunFolder(session.run.folder).intervals())
    with pytest.raises(UsageError, match="is closed: use it in its with block"):
        session.submit(calls.square, 1)


def test_waits_are_seen_by_the_strategy() -> None:
    """In virtual time, no node is held while the script waits for the QPU alone."""
    with qtide.session(cluster="simulated:2", strategy="elastic") as session:
        for _ in range(3):
            assert list(session.map(_busy, [10, 10])) == [10, 10]
            assert session.qpu.run(Burst(100.0, 7)) == 7
    metrics = session.run.metrics
    assert metrics.total == pytest.approx(330)
    assert metrics.nodes_held == pytest.approx(60)


def _busy(seconds: float) -> float:
    qtide.pretend(seconds)
    return seconds


def test_futures_in_virtual_time() -> None:
    with qtide.session(**SIMULATED) as session:
        futures = [session.submit(_busy, n) for n in (3, 1, 2)]
        assert {each.result() for each in as_completed(futures)} == {1, 2, 3}
        more: list[Future[Any]] = [session.submit(_busy, 1), session.qpu.submit(Burst(1.0, 5))]
        assert not wait([*more, *futures]).not_done
        with pytest.raises(ValueError, match="no 1"):
            session.submit(calls.refuse, 1).result()


def test_the_qpu_as_sampler_and_as_backend() -> None:
    model = dimod.BinaryQuadraticModel({"a": -1.0, "b": 1.0}, {}, 0.0, "BINARY")
    with qtide.session(**SIMULATED, qpu="annealer") as session:
        sampler = session.qpu.sampler()
        assert sampler.sample(model, num_reads=5, seed=1).first.sample == {"a": 1, "b": 0}
        assert sampler.properties["num_reads_range"][0] == 1
        with pytest.raises(UsageError, match="takes no Qiskit circuits"):
            session.qpu.backend()


def test_the_qpu_as_a_qiskit_backend() -> None:
    from qiskit import QuantumCircuit, transpile

    circuit = QuantumCircuit(2)
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure_all()
    with qtide.session(**SIMULATED, qpu="gate") as session:
        backend = session.qpu.backend()
        job = backend.run(transpile(circuit, backend), shots=100, seed_simulator=3)
        counts = job.result().get_counts()
        again = backend.run(transpile(circuit, backend), shots=100, seed_simulator=3)
        assert again.result().get_counts() == counts
    assert counts.keys() == {"00", "11"}


def test_queued_calls_can_be_cancelled(here: Path) -> None:
    with qtide.session(cluster="local:1") as session:
        first = session.submit(calls.wait_for, str(here / "go"))
        session.flush()
        queued = [session.submit(calls.marked, str(here), number) for number in range(20)]
        session.flush()
        while not first.running():
            assert not wait([first], 0.01).done
        assert not first.cancel()
        assert all(each.cancel() for each in queued[1:])
        assert wait(queued[1:], 30).done == set(queued[1:])  # as others see it, too
        (here / "go").touch()
        assert first.result(60)
        assert queued[0].result(60) == 0
    assert (here / "marks").read_text() == "0 "


def test_calls_that_were_all_cancelled_wait_for_no_node() -> None:
    """No other job ever gives a node back, and yet the session ends."""
    with qtide.session(**SIMULATED) as session:
        futures = [session.submit(_busy, 1000) for _ in range(5)]
        session.flush()
        assert all(each.cancel() for each in futures)
        assert session.submit(_busy, 1).result() == 1
    assert session.run.metrics.nodes_busy == pytest.approx(1)


def test_a_payload_that_waits_for_the_qpu_can_be_cancelled() -> None:
    with qtide.session(**SIMULATED, strategy="workflow") as session:
        futures = [session.qpu.submit(Burst(100.0, number)) for number in range(3)]
        assert futures[0].result() == 0
        assert [futures[1].running(), futures[1].cancel(), futures[2].cancel()] == [
            True,
            False,
            True,
        ]
    assert session.run.metrics.qpu_busy == pytest.approx(200)


def test_shutdown_ends_as_that_of_an_executor(here: Path) -> None:
    session = qtide.session(cluster="local:1").__enter__()
    first = session.submit(calls.wait_for, str(here / "go"))
    session.flush()
    while not first.running():
        assert not wait([first], 0.01).done
    queued = [session.submit(calls.square, number) for number in range(20)]
    session.shutdown(wait=False, cancel_futures=True)
    assert all(each.cancelled() for each in queued)
    with pytest.raises(RuntimeError, match="is closed"):
        session.submit(calls.square, 1)
    (here / "go").touch()
    session.shutdown()
    assert first.result(0)
    assert session.run.state == "done"


def test_workers_are_terminated_at_once(here: Path) -> None:
    with qtide.session(cluster="local:1") as session:
        future = session.submit(calls.wait_for, str(here / "never"))
        session.flush()
        session.terminate_workers()
        with pytest.raises(QtideError, match="ended before call 1 did"):
            future.result(0)


def test_the_cause_of_an_exception_survives(shared: qtide.Session) -> None:
    mixed: list[Future[Any]] = []
    for _ in range(10):
        mixed += [shared.submit(calls.square, 1), shared.submit(calls.caused)]
    for future in (shared.submit(calls.caused), *mixed[1::2]):
        error = future.exception(60)
        assert isinstance(error, ValueError)
        assert isinstance(error.__cause__, KeyError)
        assert error.__cause__.args == ("the cause",)
    unpicklable = shared.submit(calls.caused_by_a_lock).exception(60)
    assert isinstance(unpicklable, ValueError)
    assert unpicklable.__cause__ is None


def test_an_initializer_runs_once_in_each_process(here: Path) -> None:
    terms: dict[str, Any] = {"initializer": calls.marked, "initargs": (str(here), 7)}
    with qtide.session(cluster="local:1", strategy="static", **terms) as session:
        assert session.submit(calls.square, 2).result(60) == 4
        assert list(session.map(calls.square, range(20), chunksize=5))[-1] == 19 * 19
    assert (here / "marks").read_text() == "7 "
    with pytest.raises(TypeError, match="initializer= takes a function, not 3"):
        qtide.session(**LOCAL, initializer=3)  # type: ignore[arg-type]


def test_a_session_whose_initializer_fails_is_broken() -> None:
    with qtide.session(**LOCAL, initializer=calls.refuse, initargs=(5,)) as session:
        with pytest.raises(BrokenExecutor, match=r"initializer refuse failed .*: no 5"):
            session.submit(calls.square, 1).result(60)
        with pytest.raises(BrokenExecutor, match="initializer refuse failed"):
            session.submit(calls.square, 1)


SLOW = """
import sys, qtide
from qtide.interfaces import progress
from tests.interfaces.sessions import calls
progress.REPORTING = 0.05
with qtide.session(cluster="local:1", name="slow") as session:
    waiting = session.submit(calls.wait_for, "go")
    sys.stdout.write("printed\\n")
    waiting.result(60)
"""


def test_a_script_on_a_terminal_sees_its_progress(here: Path) -> None:
    (here / "script.py").write_text(SLOW)
    terminal, theirs = pty.openpty()
    script = subprocess.Popen(
        [sys.executable, "script.py"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    told = b""
    while b"0 phases: classical wait_for" not in told:
        told += os.read(terminal, 1000)
    (here / "go").touch()
    assert script.communicate(timeout=60)[0] == b"printed\n"
    with suppress(OSError):  # the end of a terminal
        while more := os.read(terminal, 1000):
            told += more
    assert all(line.startswith(b"qtide: slow: ") for line in told.splitlines())
    assert told.endswith(b"1 phase\r\n")
