"""A job's communicator is one of mpi4py's, with its keywords, defaults and derived objects."""

import shutil
import subprocess
import sys
import time
import weakref
from itertools import count
from pathlib import Path

import pytest

from qtide.mpi.watched import wait
from tests.mpi.stage import Stage


def test_calls_take_what_mpi4py_takes_and_give_what_it_gives(local: Stage) -> None:
    assert local.run("api.py") == "AB\n"


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests in mpi4py's sources."""
    folder = tmp_path_factory.mktemp("mpi4py")
    words = ["pip", "download", "--quiet", "--no-deps", "--no-binary=mpi4py", "mpi4py==4.1.2"]
    subprocess.run([sys.executable, "-m", *words], cwd=folder, check=True, timeout=300)
    (archive,) = folder.glob("mpi4py-*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / "mpi4py-4.1.2" / "test"


@pytest.mark.further  # it fetches mpi4py's sources, and takes minutes
@pytest.mark.parametrize(
    "modules",
    [
        ("test_comm", "test_comm_topo", "test_request", "test_p2p_buf_matched"),
        ("test_p2p_obj", "test_p2p_obj_matched", "test_cco_obj", "test_cco_ngh_obj"),
        ("test_cco_buf",),
        ("test_cco_vec",),
    ],
)
def test_tests_of_mpi4py_pass_after_growth_a_shrink_and_a_loss(
    modules: tuple[str, ...], suite: Path, local: Stage
) -> None:
    told = local.run("suite.py", str(suite), *modules, limit=600).splitlines()
    assert [line.partition(" ranks: ")[0] for line in told] == ["3", "2", "1", "3"]
    assert [line for line in told if not line.endswith("tests, failed: []")] == []


def test_a_wait_ends_with_what_the_test_found() -> None:
    numbers = count()
    assert wait(lambda: next(numbers), lambda: None, lambda found: found == 500) == 500


def test_a_wait_that_never_ends_is_watched() -> None:
    def watch() -> None:
        raise TimeoutError

    class Receive:
        def test(self) -> bool:
            return False

    request = Receive()
    kept = weakref.ref(request)
    with pytest.raises(TimeoutError):
        wait(request.test, watch)
    del request
    assert kept() is not None  # MPI may still write to it


def test_a_long_wait_leaves_its_core_to_others() -> None:
    last = time.monotonic() + 1
    used = time.process_time()
    wait(lambda: time.monotonic() > last, lambda: None)
    assert time.process_time() - used < 0.5
