"""A job's communicator is one of mpi4py's, with its keywords, defaults and derived objects."""

import time
from itertools import count

import pytest

from qtide.mpi.watched import wait
from tests.mpi.stage import Stage


def test_calls_take_what_mpi4py_takes_and_give_what_it_gives(local: Stage) -> None:
    assert local.run("api.py") == "AB\n"


def test_a_wait_ends_with_what_the_test_found() -> None:
    numbers = count()
    assert wait(lambda: next(numbers), lambda: None, lambda found: found == 500) == 500


def test_a_wait_that_never_ends_is_watched() -> None:
    def watch() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        wait(lambda: False, watch)


def test_a_long_wait_leaves_its_core_to_others() -> None:
    last = time.monotonic() + 1
    used = time.process_time()
    wait(lambda: time.monotonic() > last, lambda: None)
    assert time.process_time() - used < 0.5
