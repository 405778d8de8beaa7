from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qtide.backends.clusters.slurm.mark import Driver, job_name
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values


def test_a_comment_names_its_driver() -> None:
    own = Driver.own()
    assert Driver.read(own.comment()) == own
    assert not own.dead


@pytest.mark.parametrize("comment", ["", "a remark", "qtide:x", "qtide:h:s:pid:1", "other:h:s:1:2"])
def test_what_is_no_mark_is_nobody_s(comment: str) -> None:
    assert Driver.read(comment) is None


def test_a_process_that_ended_is_dead() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert replace(Driver.own(), pid=child.pid).dead


def test_a_pid_that_was_given_again_is_not_the_driver() -> None:
    assert replace(Driver.own(), began="1").dead


def test_nothing_is_known_of_other_machines_and_containers() -> None:
    assert not replace(Driver.own(), host="elsewhere", pid=1, began="0").dead
    assert not replace(Driver.own(), space="1", pid=1, began="0").dead


def test_runs_of_one_name_in_two_folders_differ(tmp_path: Path) -> None:
    jobs = [JobContext("job-1", Ledger("j", float), Values(tmp_path / each)) for each in "ab"]
    assert job_name(jobs[0]) != job_name(jobs[1])
    assert job_name(jobs[0]) == job_name(
        JobContext("job-1", Ledger("j", float), Values(tmp_path / "a"))
    )
