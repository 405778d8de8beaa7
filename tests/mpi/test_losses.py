"""Nodes that are lost at the worst moments: the program goes on, and nothing hangs."""

import re
import signal

import pytest

from tests.backends.slurm.stage import until
from tests.mpi.stage import PROGRAMS, Stage

BEFORE = ("connect", "connected", "merge", "redistribution")


@pytest.mark.parametrize("moment", BEFORE)
def test_a_newcomer_lost_before_it_is_a_member_costs_nothing(moment: str, local: Stage) -> None:
    assert local.run("losses.py", moment) == "done 3 499500 losses 0\n"


def test_the_same_on_slurm(on_slurm: Stage) -> None:
    assert on_slurm.run("losses.py", "merge") == "done 3 499500 losses 0\n"


def test_a_node_lost_in_a_collective_is_noticed_and_survived(on_slurm: Stage) -> None:
    first, last = on_slurm.run("losses.py", "collective").splitlines()
    assert float(first.removeprefix("lost within ")) < 5
    assert last == "done 3 499500 losses 1"


OPERATIONS = re.findall(
    r'^    "([\w.]+)": lambda', (PROGRAMS / "kills.py").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("half", [0, 1])
def test_no_operation_hangs_when_a_rank_is_killed(half: int, local: Stage) -> None:
    names = OPERATIONS[half::2]
    told = local.run("kills.py", ",".join(names), limit=150)
    assert told.splitlines() == [f"{name} soon" for name in names]
    assert len(OPERATIONS) >= 42


@pytest.mark.parametrize("transports", ["all", "tcp,self"])
@pytest.mark.parametrize("moment", ["soon", "late"])
def test_survivors_live_on_and_their_arrays_are_theirs(
    moment: str, transports: str, local: Stage, compilers: None
) -> None:
    """Over TCP, MPICH used requests that did not exist; on one computer, UCX aborted; and calls
    that had been given up went on writing to the program's arrays."""
    local.variables |= {"UCX_TLS": transports, "UCX_LOG_LEVEL": "fatal"}
    assert local.run("dying.py", moment) == "2 ranks, changed later: [[], []]\n"


def test_a_program_goes_on_from_what_was_saved(local: Stage) -> None:
    def killed() -> None:
        process = local.start("saved.py", "dies")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (-signal.SIGKILL, "saved 3\n"), err
        assert until(lambda: not local.processes(), 10), local.processes()

    killed()
    assert local.run("saved.py", "lives") == "began with 0, 4950\n"
    assert local.run("saved.py", "dies") == "began with 3, 4950\n"
    killed()  # the run before was finished: this one begins anew
