"""The application as a user runs it, in virtual time; its tasks are really called."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from qtide.apps.clustering.points import PointsError, blobs
from qtide.core.errors import UsageError
from qtide.runs.driver import Outcome, play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.strategy import STRATEGIES


def run(folder: Path, *words: object, strategy: str = "elastic") -> Outcome:
    spec = Spec("clustering", [str(word) for word in words], strategy, "simulated:3")
    return play(RunFolder.create(folder, "run", spec), lambda *_: None)


def result(folder: Path, *words: object, strategy: str = "elastic") -> Any:
    outcome = run(folder, *words, strategy=strategy)
    assert outcome.error is None
    return outcome.value


def test_the_published_data_passes_in_two_rounds(tmp_path: Path) -> None:
    found = result(tmp_path, "--blobs", 2000, "--configuration", "published")
    assert found["passed"]
    assert len(found["scores"]) <= 2


def test_the_search_passes_as_well(tmp_path: Path) -> None:
    assert result(tmp_path, "--blobs", 2000)["passed"]


def test_results_lie_in_the_runs_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", blobs(500))
    found = result(tmp_path, tmp_path / "points.npy", "--most", 2, "--threshold", 0.99)
    folder = tmp_path / "run"
    labels = np.load(folder / "labels.npy")
    assert found["silhouette"] == pytest.approx(silhouette_score(blobs(500), labels), abs=1e-6)
    assert np.loadtxt(folder / "labels.csv", skiprows=1).astype(int).tolist() == labels.tolist()
    rounds = json.loads((folder / "iterations.json").read_text())["rounds"]
    assert [round(each["silhouette"], 6) for each in rounds] == found["scores"]
    assert all(each["clusters"] and 0 <= each["gap"] <= 1 for each in rounds)
    assert (folder / "clusters.png").stat().st_size > 10_000


def test_every_strategy_finds_the_same(tmp_path: Path) -> None:
    words = ("--blobs", 300, "--most", 2, "--threshold", 0.99)
    found = [result(tmp_path, *words, strategy=name) for name in STRATEGIES.names()]
    assert all(each == found[0] for each in found)


def test_parts_sum_to_the_exact_score(tmp_path: Path) -> None:
    words = ("--blobs", 400, "--most", 1)
    whole, parts = (result(tmp_path, *words, *more) for more in ((), ("--parts", 3)))
    assert parts["silhouette"] == pytest.approx(whole["silhouette"], abs=1e-6)


def test_other_methods_can_be_added(tmp_path: Path) -> None:
    words = ("--method", "hdbscan,spectral", "--linkage", "ward")
    result(tmp_path, "--blobs", 300, "--most", 1, *words)
    rounds = json.loads((tmp_path / "run" / "iterations.json").read_text())["rounds"]
    assert rounds[0]["setting"]["extras"] == ["hdbscan", "spectral"]


def test_columns_of_a_csv_by_name_and_by_number(tmp_path: Path) -> None:
    points = blobs(300)
    rows = "".join(f"{x},{number},{y}\n" for number, (x, y) in enumerate(points))
    (tmp_path / "points.csv").write_text(f"x,id,y\n{rows}")
    by_name, by_number = (
        result(tmp_path, tmp_path / "points.csv", "--columns", columns, "--most", 1)
        for columns in ("x,y", "0,2")
    )
    assert by_name["silhouette"] == by_number["silhouette"]
    assert by_name == result(tmp_path, "--blobs", 300, "--most", 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere.csv",), "nowhere.csv: there is no such file"),
        ((), "give either a file of points, or --blobs"),
        (("a.csv", "--blobs", 5), "give either a file of points, or --blobs"),
        (("--blobs", 2), "2 points are too few"),
        (("--blobs", 99, "--weighting", "x"), "--weighting is quality or published"),
        (("--blobs", 99, "--configuration", "x"), "--configuration is search or published"),
        (("--blobs", 99, "--linkage", "magic"), "--linkage is single or ward or centroid"),
        (("--blobs", 99, "--method", "magic"), "--method is hdbscan or spectral, not 'magic'"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, words: tuple[object, ...], sentence: str
) -> None:
    error = run(tmp_path, *words).error
    assert isinstance(error, UsageError | PointsError)
    assert sentence in str(error)
