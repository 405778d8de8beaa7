"""CPython's own tests of executors, with sessions on the local cluster as the executor."""

from __future__ import annotations

import importlib
import shutil
import sys
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import qtide
from tests.interfaces.sessions.cpython import executor_tests

MODULE = "cpython_executor_tests"
NOT_OPENED = "starts an executor in a script without a with block, which a session needs"
LEFT_OUT = {
    "test_interpreter_shutdown": NOT_OPENED,
    "test_submit_after_interpreter_shutdown": NOT_OPENED,
    "test_hang_gh83386": NOT_OPENED,
    "test_max_workers_negative": "a session has nodes in place of max_workers",
    "test_cancel_futures": "expects a call to begin at once; a node takes longer to start",
}
"""Tests that cannot apply, and why."""
CLASSES = {
    "ExecutorTest": 7,
    "ExecutorShutdownTest": 2,
    "InitializerMixin": 1,
    "FailingInitializerMixin": 1,
}
"""CPython's classes of tests of executors, and how many of their tests apply at least."""
OF_FUTURES = {"WaitTests": 8, "AsCompletedTests": 5}
"""Those of futures, which are CPython's own."""


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """CPython's tests as a module that nodes find as well."""
    source = executor_tests(Path(sys.prefix) / "cpython-tests")
    if source.name == "__init__.py":  # from Python 3.12 on, a package
        yield importlib.import_module("test.test_concurrent_futures.executor")
        return
    shutil.copyfile(source, here / f"{MODULE}.py")
    monkeypatch.syspath_prepend(here)
    yield importlib.import_module(MODULE)
    del sys.modules[MODULE]


def suite(module: ModuleType, name: str, runs: Path) -> unittest.TestSuite:
    """The tests of one of CPython's classes, each with a session of its own."""

    def opened(max_workers: int = 2, **terms: Any) -> qtide.Session:
        return qtide.session(cluster=f"local:{max_workers}", runs=runs, **terms).__enter__()

    mixin = getattr(module, name)
    terms = {
        "executor_type": staticmethod(opened),
        "_assert_logged": nullcontext,
        "worker_count": 2,
    }
    bases = (mixin,) if issubclass(mixin, module.ExecutorMixin) else (mixin, module.ExecutorMixin)
    cases: Any = type(name, (*bases, unittest.TestCase), terms)
    names = unittest.defaultTestLoader.getTestCaseNames(cases)
    return unittest.TestSuite(cases(each) for each in names if each not in LEFT_OUT)


@pytest.mark.parametrize("classes", [CLASSES, pytest.param(OF_FUTURES, marks=pytest.mark.further)])
def test_cpythons_tests_of_executors(
    module: ModuleType, here: Path, classes: dict[str, int]
) -> None:
    """At the same time, since most of them sleep; no clock decides any."""
    results = {name: unittest.TestResult() for name in classes}
    with ThreadPoolExecutor(len(classes)) as threads:
        for name, result in results.items():
            threads.submit(suite(module, name, here / name).run, result)
    for name, result in results.items():
        failed = [f"{case.id()}: {trace}" for case, trace in result.failures + result.errors]
        assert not failed, "\n".join(failed)
        assert not result.skipped
        assert result.testsRun >= classes[name]
