"""What is finished is never written again."""

from pathlib import Path

import pytest

from qtide.runs.driver import play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec


@pytest.mark.parametrize("cluster", ["simulated:3", "local:1"])
def test_resuming_a_finished_run_changes_no_file(tmp_path: Path, cluster: str) -> None:
    words = ["published", "--iterations", "1"]
    spec = Spec("synthetic", words, cluster=cluster, time_scale=0.0001)
    run = RunFolder.create(tmp_path, "it", spec)
    first = play(run, lambda *_: None)
    assert first.error is None
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    told: list[str] = []
    again = play(RunFolder(run.path), lambda name, *_: told.append(name))
    assert (again.value, again.error, told) == (first.value, None, [])
    assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before
