"""The joblib backend: loops of joblib and of scikit-learn on nodes."""

from __future__ import annotations

import joblib
import pytest

import qtide
import qtide.joblib
from tests.interfaces.sessions import calls


def test_a_loop_of_joblib_runs_on_nodes() -> None:
    with joblib.parallel_config("qtide", cluster="local:2", strategy="elastic"):
        squares = joblib.Parallel()(joblib.delayed(calls.square)(n) for n in range(50))
        assert squares == [n * n for n in range(50)]
        with pytest.raises(ValueError, match="no 3"):
            joblib.Parallel()(joblib.delayed(calls.refuse)(n) for n in [3])
    first, second = qtide.list_runs()
    assert first.metrics.nodes_busy > 0
    assert (first.state, second.state) == ("done", "done")


def test_results_as_they_come() -> None:
    with joblib.parallel_config("qtide", cluster="local:2"):
        loop = joblib.Parallel(return_as="generator")
        assert list(loop(joblib.delayed(calls.square)(n) for n in range(9))) == [
            n * n for n in range(9)
        ]


def test_scikit_learn_finds_the_same_as_without_nodes() -> None:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    points, labels = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=200)
    alone = cross_val_score(model, points, labels, cv=3)
    with joblib.parallel_config("qtide", cluster="local:2"):
        there = cross_val_score(model, points, labels, cv=3, n_jobs=-1)
    assert list(there) == list(alone)


def test_options_are_checked() -> None:
    for cluster, why in (
        ("nowhere", "there is no cluster 'nowhere'"),
        ("simulated", "joblib needs real time"),
    ):
        with (
            joblib.parallel_config("qtide", cluster=cluster),
            pytest.raises(qtide.UsageError, match=why),
        ):
            joblib.Parallel()(joblib.delayed(calls.square)(n) for n in range(2))
    assert not qtide.list_runs()
