"""Nodes that are lost at the worst moments: the program goes on, and nothing hangs."""

import pytest

from tests.mpi.stage import Stage

BEFORE = ("connect", "merge", "redistribution")


@pytest.mark.parametrize("moment", BEFORE)
def test_a_newcomer_lost_before_it_is_a_member_costs_nothing(moment: str, local: Stage) -> None:
    assert local.run("losses.py", moment) == "done 3 499500 losses 0\n"


@pytest.mark.parametrize("moment", BEFORE)
def test_the_same_on_slurm(moment: str, on_slurm: Stage) -> None:
    assert on_slurm.run("losses.py", moment) == "done 3 499500 losses 0\n"


def test_a_node_lost_in_a_collective_is_noticed_and_survived(on_slurm: Stage) -> None:
    first, last = on_slurm.run("losses.py", "collective").splitlines()
    assert float(first.removeprefix("lost within ")) < 5
    assert last == "done 3 499500 losses 1"
