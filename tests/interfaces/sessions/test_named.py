"""Sessions with a name: what they keep, and how a script that is started again goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import qtide
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError, UsageError
from tests.interfaces.sessions import calls

SIMULATED: dict[str, Any] = {"cluster": "simulated:2"}
LOCAL: dict[str, Any] = {"cluster": "local:2"}
ROOT = str(Path(__file__).parents[3])


def started(folder: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What a script that ran in a process of its own said."""
    (folder / "script.py").write_text(script)
    return subprocess.run(
        [sys.executable, "script.py"],
        env=os.environ | {"PYTHONPATH": ROOT} | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_named_session_runs_no_command_twice(tmp_path: Path) -> None:
    for _ in range(2):
        with qtide.session(name="it", runs=tmp_path, **LOCAL) as s:
            assert s.run("sh", "-c", f"echo x >> {tmp_path}/log; echo done").output == "done\n"
    assert (tmp_path / "log").read_text() == "x\n"


def test_a_named_session_goes_on_where_it_was(here: Path) -> None:
    folder = str(here)
    with pytest.raises(KeyError), qtide.session(**SIMULATED, name="mine") as session:
        assert list(session.map(calls.marked, [folder] * 3, range(3))) == [0, 1, 2]
        assert session.qpu.run(Burst(1.0, 5)) == 5
        raise KeyError
    with qtide.session(**SIMULATED, name="mine") as session:
        assert list(session.map(calls.marked, [folder] * 3, range(3))) == [0, 1, 2]
        assert session.qpu.run(Burst(1.0, 5)) == 5
        assert session.submit(calls.marked, folder, 3).result() == 3
    assert (here / "marks").read_text() == "0 1 2 3 "


def test_a_call_that_no_longer_fits_is_named() -> None:
    with qtide.session(**SIMULATED, name="mine") as session:
        session.submit(calls.square, 1).result()
        session.submit(calls.square, 2).result()
    with qtide.session(**SIMULATED, name="mine") as session:
        assert session.submit(calls.square, 1).result() == 1
        with pytest.raises(QtideError, match=r"call 2 is «classical square .*» in the journal"):
            session.submit(calls.square, 3)


def test_a_failure_that_the_script_survived_is_kept(here: Path) -> None:
    for _ in range(2):
        with qtide.session(**SIMULATED, name="mine") as session:
            with pytest.raises(ZeroDivisionError):
                session.submit(_fails_once, str(here / "flag")).result()
            assert session.submit(calls.square, 2).result() == 4


def _fails_once(flag: str) -> None:
    if not Path(flag).exists():
        Path(flag).touch()
        raise ZeroDivisionError


def test_names_have_one_order_and_one_owner(here: Path) -> None:
    def elsewhere(session: qtide.Session, errors: list[str]) -> None:
        try:
            session.submit(calls.square, 1)
        except UsageError as error:
            errors.append(str(error))

    errors: list[str] = []
    with qtide.session(**SIMULATED, name="mine") as session:
        thread = threading.Thread(target=elsewhere, args=(session, errors))
        thread.start()
        thread.join()
        with (
            pytest.raises(QtideError, match="another driver is working on"),
            qtide.session(**SIMULATED, name="mine"),
        ):
            pass
        with pytest.raises(UsageError, match=r"cannot be pickled .* so a session with a name"):
            session.submit(print, threading.Lock())
    assert "come from the thread that opened it" in errors[0]
    with pytest.raises(UsageError, match="is a session, not a program: start its script"):
        qtide.resume("mine")


@pytest.mark.parametrize("name", ["../mine", "..", "a/b", "/mine"])
def test_a_name_leads_nowhere_else(name: str) -> None:
    with pytest.raises(UsageError, match="is that of a folder, without any /"):
        qtide.session(**SIMULATED, name=name)


SCRIPT = """
import os, qtide
from pathlib import Path
from tests.interfaces.sessions import calls
with qtide.session(cluster="local:1", name="mine") as session:
    for number in range(4):
        print(session.submit(calls.marked, ".", number).result(), flush=True)
        if number == 2 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), 9)
"""


def test_a_script_that_was_killed_goes_on(here: Path) -> None:
    for code in (-signal.SIGKILL, 0):
        done = started(here, SCRIPT)
        assert done.returncode == code, done.stderr
    assert done.stdout.split() == ["0", "1", "2", "3"]
    assert (here / "marks").read_text() == "0 1 2 3 "


def test_a_payload_may_have_a_classical_equivalent(tmp_path: Path) -> None:
    def answers() -> list[Any]:
        with qtide.session(name="either", runs=tmp_path, **SIMULATED) as session:
            equal = qtide.task(calls.square, 3)
            refused = session.qpu.run("no payload", otherwise=equal)
            return [refused, session.qpu.run(Burst(1.0, 5), otherwise=equal, patience=0)]

    assert answers() == [9, 5]
    journal = (tmp_path / "either" / "journal").read_bytes()
    assert answers() == [9, 5]
    assert (tmp_path / "either" / "journal").read_bytes() == journal


RESUMED = """
import qtide
from tests.interfaces.sessions import calls
with qtide.session(cluster="simulated:2", name="mine") as session:
    tagged = calls.Tagged()
    print(session.submit(calls.tags_of, tagged).result(), session.submit(len, [tagged]).result())
"""


def test_sets_in_arguments_have_no_order(here: Path) -> None:
    for seed in ("1", "2", "3"):
        done = started(here, RESUMED, PYTHONHASHSEED=seed)
        assert (done.returncode, done.stdout) == (0, "5 1\n"), done.stderr


def test_a_session_without_a_name_keeps_no_values() -> None:
    for name in (None, "mine"):
        with qtide.session(**LOCAL, name=name) as session:
            arrays = list(session.map(calls.large, range(3)))
            assert [int(each[0]) for each in arrays] == [0, 1, 2]
        folder = session.run.folder / "values"
        assert [*folder.glob("*")] == [] if not name else len([*folder.glob("*")]) == 3
