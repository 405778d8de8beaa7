"""Programs run, submitted, resumed and compared from Python."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qtide
from qtide import classical, program, task
from qtide.core.errors import QtideError, UsageError
from qtide.interfaces.python.run import RunFailed
from qtide.runs.driver import plain
from tests.runs.programs_for_tests import breaks, squares


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("QTIDE_RUNS", raising=False)
    return tmp_path


def twice(number: float) -> float:
    return 2 * number


@program
async def doubled(numbers: list[float], *, more: float = 0.0) -> set[float]:
    return {each + more for each in await classical(*(task(twice, each) for each in numbers))}


@program
async def crowded(nodes: int, seed: int = 0) -> tuple[int, int]:
    return await task(int, nodes), seed


@program
async def slow(folder: Path) -> int:
    (folder / "begun").touch()
    return await task(_sleep, 60)


def _sleep(seconds: int) -> int:
    time.sleep(seconds)
    return seconds


def test_a_run_has_its_value_figures_and_pictures(here: Path) -> None:
    ran = doubled.run([1.0, 2.0], more=0.5, cluster="simulated", name="one")
    assert ran.value == {2.5, 4.5}
    assert (ran.name, ran.state, ran.folder) == ("one", "done", Path("qtide-runs/one"))
    assert ran.metrics.nodes_busy >= 0
    assert ran.report().read_text().count("elastic") > 1
    assert len(ran.timeline().axes) == 1
    assert "prefers-color-scheme: dark" in ran._repr_html_()
    assert ran.describe()["phases"] == 1


def test_values_of_any_type_are_kept_with_the_run(here: Path) -> None:
    doubled.run([1.0], cluster="simulated", name="one")
    (found,) = qtide.list_runs()
    assert found.value == {2.0}
    assert qtide.resume("one").value == {2.0}


def test_options_are_checked_in_the_words_of_the_commands(here: Path) -> None:
    with pytest.raises(UsageError, match="there is no cluster 'nowhere'"):
        doubled.run([], cluster="nowhere")
    with pytest.raises(UsageError, match="--favour is an option of --strategy elastic"):
        doubled.run([], strategy="static", favour="time")
    with pytest.raises(UsageError, match="--nodes 9 does not fit"):
        doubled.run([], nodes=9)
    with pytest.raises(UsageError, match="qtide has no option 'colour' here"):
        doubled.run([], cluster="local", colour="red")
    with pytest.raises(UsageError, match="'nods' here; did you mean 'nodes'\\? There are"):
        doubled.run([], cluster="local", nods=2)
    with pytest.raises(UsageError, match="the arguments do not fit the program"):
        doubled.run(cluster="simulated")
    with pytest.raises(UsageError, match="have to be kept with its run"):
        doubled.run(threading.Lock(), cluster="simulated")
    assert not list((here / "qtide-runs").glob("*/journal"))


def test_an_option_that_may_be_the_programs_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match="nodes is an option of qtide and of crowded"):
        crowded.run(nodes=2, cluster="simulated")
    assert crowded.using(cluster="simulated", nodes=1, seed=7).run(nodes=2).value == (2, 7)


def test_a_file_sets_defaults_as_for_the_commands(here: Path) -> None:
    (here / "qtide.toml").write_text('cluster = "simulated"\n[run]\nstrategy = "static"\n')
    ran = doubled.run([1.0])
    assert (ran.describe()["spec"]["cluster"], ran.describe()["spec"]["strategy"]) == (
        "simulated",
        "static",
    )


def test_an_error_of_the_program_is_raised_as_it_is_and_the_run_resumes(here: Path) -> None:
    with pytest.raises(ZeroDivisionError) as failed:
        breaks.run(str(here), name="broken")
    assert "qtide.resume('broken')" in "".join(failed.value.__notes__)
    (found,) = qtide.list_runs()
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        _ = found.value
    (here / "mended").touch()
    assert qtide.resume(found).value == 2.0
    assert (here / "marks").read_text() == "1 "


def test_a_submitted_run_is_waited_for(here: Path) -> None:
    run = squares.submit(str(here), rounds=1, time_scale=0.1)
    assert run.state in ("running", "done")
    assert run.wait(60).value == [0, 0, 1, 0]


def test_a_submitted_run_is_cancelled_and_has_no_value(here: Path) -> None:
    run = slow.submit(here, cluster="local:1")
    with pytest.raises(TimeoutError, match="is still running after 0 s"):
        run.wait(0)
    run.cancel()
    assert run.state == "cancelled"
    with pytest.raises(UsageError, match="has no value: it is cancelled"):
        _ = run.value


def test_a_comparison_has_a_table_and_timelines(here: Path) -> None:
    found = qtide.compare(
        doubled, [1.0, 2.0], strategy=("static", "elastic"), jobs=(1, 2), cluster="simulated"
    )
    assert [(row["strategy"], row["jobs"]) for row in found.table] == [
        ("static", 1),
        ("elastic", 1),
        ("static", 2),
        ("elastic", 2),
    ]
    assert {each.value == {2.0, 4.0} for each in found.runs} == {True}
    assert list(found.timelines()) == [1, 2]
    assert "static" in str(found)
    assert found._repr_html_().count("<svg") == 2
    with pytest.raises(UsageError, match="--jobs has to be at least 1"):
        qtide.compare(doubled, [1.0], jobs=0, cluster="simulated")


def test_where_an_event_loop_is_running(here: Path) -> None:
    async def notebook() -> Any:
        return doubled.run([3.0], time_scale=0.1).value

    assert asyncio.run(notebook()) == {6.0}


def test_an_interrupt_where_an_event_loop_is_running_gives_everything_back(here: Path) -> None:
    def interrupt() -> None:
        limit = time.monotonic() + 30
        while not (here / "begun").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    async def notebook() -> None:
        with pytest.raises(KeyboardInterrupt):
            slow.run(here, cluster="local:1", name="cut")
        raise_later.set()

    raise_later = threading.Event()
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    loop = asyncio.new_event_loop()
    thread.start()
    try:
        loop.run_until_complete(notebook())
    finally:
        thread.join()
        loop.close()
        signal.signal(signal.SIGINT, usual)
    assert raise_later.is_set()
    assert qtide.list_runs()[0].state == "interrupted"


MAIN = """
from qtide import program, task
def half(x): return x / 2
@program
async def mine(x: float = 3.0):
    return await task(half, x)
"""


def test_a_file_that_ends_with_main_is_a_command(here: Path) -> None:
    (here / "mine.py").write_text(MAIN + "mine.main()\n")
    command = [sys.executable, "mine.py", "5", "--cluster", "simulated", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, '"value": 2.5' in done.stdout) == (0, True), done.stderr


def test_a_script_runs_its_own_program_and_that_resumes(here: Path) -> None:
    script = (
        '\nif __name__ == "__main__":\n    print(mine.run(7, time_scale=0.1, name="own").value)\n'
    )
    (here / "mine.py").write_text(MAIN + script)
    done = subprocess.run(
        [sys.executable, "mine.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "3.5\n", done.stderr
    again = [sys.executable, "-m", "qtide", "resume", "own", "--json"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
    assert '"value": 3.5' in done.stdout, done.stderr


def test_a_script_that_runs_as_it_is_imported_is_told_so(here: Path) -> None:
    (here / "eager_one.py").write_text(MAIN + "mine.run(7)\n")
    with pytest.raises(QtideError, match="runs mine as soon as it is imported"):
        qtide.resume(_planned(here))


def _planned(here: Path) -> str:
    from qtide.runs.folder import RunFolder
    from qtide.runs.spec import Spec

    file = here / "eager_one.py"
    return str(RunFolder.create(here / "runs", "eager", Spec(f"{file}:mine")).path)


def test_a_program_of_a_notebook_is_kept_with_its_run(here: Path) -> None:
    @program
    async def local(number: int) -> int:
        return await task(abs, number)

    local.run(-3, cluster="simulated", name="local")
    assert qtide.resume("local").value == 3


def test_numbers_of_numpy_are_shown_as_numbers() -> None:
    assert plain([np.int64(3), {"x": np.float64(0.5)}, (np.bool_(True),)]) == [
        3,
        {"x": 0.5},
        [True],
    ]
    assert plain(np.zeros(2)) == "array([0., 0.])"
