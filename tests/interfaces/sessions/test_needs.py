"""Calls of a session that share nodes."""

import os
import time
from pathlib import Path

import joblib
import pytest

import qtide.joblib
from qtide import session


def where(seconds: float) -> tuple[int, str | None]:
    time.sleep(seconds)
    return os.getpid(), os.environ.get("OMP_NUM_THREADS")


def test_calls_share_a_node_by_the_needs_of_the_session_or_their_own(tmp_path: Path) -> None:
    with session(cluster="local:1", cores=4, needs="cores=1", runs=tmp_path) as opened:
        assert opened.at_once == 4
        found = set(opened.map(where, [0.3] * 4, chunksize=1))
        assert len({pid for pid, _ in found}) == 4, "all four ran at once"
        assert {threads for _, threads in found} == {"1"}
        wide = opened.needs(cores=4)
        assert wide.submit(where, 0.0).result()[1] == "4"
        assert [threads for _, threads in wide.map(where, [0.0, 0.0])] == ["4", "4"]
        with pytest.raises(ValueError, match="cores is a number from 1 on"):
            opened.needs(cores=0)


def test_joblib_fills_nodes(tmp_path: Path) -> None:
    assert qtide.joblib.NAME == "qtide"
    options = {"cluster": "local:1", "cores": 3, "needs": "cores=1", "runs": tmp_path}
    with joblib.parallel_config("qtide", **options):
        found = joblib.Parallel(batch_size=1)(joblib.delayed(where)(0.3) for _ in range(3))
    assert len({pid for pid, _ in found}) == 3
