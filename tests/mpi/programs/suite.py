"""Runs tests of mpi4py's own suite on `job.comm`: after growth, a shrink, and a loss.

Arguments: the folder `test` of mpi4py's source distribution, and the modules to run. Tests on
buffers loop over all types of numbers for each kind of array; here they take two of the types, as
the others differ only within mpi4py (QTIDE_SUITE_TYPES=all: every one).
"""

import importlib
import io
import os
import signal
import sys
import unittest
from collections.abc import Iterator

from qtide.malleable import Job, NodesLost

from mpi4py import MPI  # isort: skip  # as existing programs do; ours comes first

SUITE, *MODULES, FOLDER = sys.argv[1:]
REFUSED = "is not possible on a job's communicator"
LEFT_OUT = {
    "testCommLock": "looks into mpi4py",
    "testPickle": "only MPI.COMM_WORLD itself can be pickled",
    "testCreateFromGroup": "MPICH aborts on joined communicators",
    "testCreateFromGroups": "MPICH aborts on joined communicators",
    "testCancel": "MPICH crashes when a send on joined communicators is cancelled",
    "testProbeCancel": "MPICH crashes when a send on joined communicators is cancelled",
}
TYPES = os.environ.get("QTIDE_SUITE_TYPES", "id")
HANDLES = "checkHandle"
"""A test that wants mpi4py's own class back."""


def tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """All tests of a suite that are not left out."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests(each)
        elif each.id().rpartition(".")[2] not in LEFT_OUT:
            yield each


def ran(job: Job) -> tuple[int, list[str]]:
    """Run all modules on the present communicator; how many tests, and which failed."""
    MPI.COMM_WORLD = job.comm  # type: ignore[misc]
    for name in [*MODULES, "mpiunittest", "mpitestutil"]:
        sys.modules.pop(name, None)  # they keep the communicator that they are loaded with
    if TYPES != "all":
        for kind in importlib.import_module("arrayimpl").ArrayBackends:
            kind.TypeMap = {each: kind.TypeMap[each] for each in TYPES if each in kind.TypeMap}
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for name in MODULES:
        suite.addTests(tests(loader.loadTestsFromModule(importlib.import_module(name))))
    out = io.StringIO()
    result = unittest.TextTestRunner(stream=out, verbosity=0).run(suite)
    wrong = [*result.failures, *result.errors]
    failed = [each.id() for each, text in wrong if REFUSED not in text and HANDLES not in text]
    if failed and os.environ.get("QTIDE_SUITE_VERBOSE"):
        sys.stderr.write(f"rank {job.rank} of {job.size}: {out.getvalue()}\n")
    return result.testsRun, failed


for name in ("numba", "cupy"):  # otherwise it tries a GPU, which is not there
    sys.modules[name] = None  # type: ignore[assignment]
sys.path.insert(0, SUITE)
with Job(most=3, folder=FOLDER) as job:
    job.begin(step=0, last=-1)
    while job.state.step < 4:
        job.expand(3, least=3, wait=60) if job.state.step in (0, 3) else None
        if job.state.step == 1:
            job.shrink(2)
        if job.state.step == 2:
            job.save()
            if job.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                job.comm.barrier()
            except NodesLost:
                job.recover()
        count, failed = ran(job)
        found = job.comm.gather((count, failed))
        if found is not None:
            names = sorted({name for _, each in found for name in each})
            print(f"{job.size} ranks: {found[0][0]} tests, failed: {names}", flush=True)
        job.state.step += 1
