import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from qtide.apps.clustering.points import PointsError, blobs, read_points

EXPECTED = [[1.0, 2.0], [3.0, 4.5], [-1.0, 0.0]]


def written(folder: Path, text: str) -> Path:
    path = folder / "points.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("1,2\n3,4.5\n-1,0\n", None),
        ("x,y\n1,2\n3,4.5\n\n-1,0\n", None),
        ("\ufeffFeature 1,Feature 2,Cluster\n1,2,7\n3,4.5,7\n-1,0,8\n", ["Feature 1", "Feature 2"]),
        ("name;y;x\na;2;1\nb;4.5;3\nc;0;-1\n", ["x", 1]),
        ("2\t1\n4.5\t3\n0\t-1", [1, 0]),
    ],
)
def test_csv_is_read(tmp_path: Path, text: str, columns: list[str | int] | None) -> None:
    assert read_points(written(tmp_path, text), columns).tolist() == EXPECTED


@pytest.mark.parametrize("table", [np.array(EXPECTED), np.array(EXPECTED, dtype=np.float32)])
def test_npy_is_read(tmp_path: Path, table: np.ndarray) -> None:
    np.save(tmp_path / "points.npy", table)
    assert read_points(tmp_path / "points.npy").tolist() == EXPECTED
    assert read_points(tmp_path / "points.npy", [1]).tolist() == [[2.0], [4.5], [0.0]]


def test_a_single_column_of_npy_is_one_dimension(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.arange(4))
    assert read_points(tmp_path / "points.npy").shape == (4, 1)


def test_parquet_is_read(tmp_path: Path) -> None:
    table = pyarrow.table({"y": [2.0, 4.5, 0.0], "name": ["a", "b", "c"], "x": [1, 3, -1]})
    parquet.write_table(table, tmp_path / "points.parquet")
    assert read_points(tmp_path / "points.parquet", ["x", 0]).tolist() == EXPECTED


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("x,y\n1,2\n3,nan\n5,6\n", None, r"point 2, coordinate 2 is NaN; .* \(1 in all\)"),
        ("1,2\n3,inf\n5,6\n", None, "point 2, coordinate 2 is infinite"),
        ("1,2\n3,1e200\n5,6\n", None, "is 1e\\+200, too large"),
        ("x,y\n1,2\n3,red\n5,6\n", None, "line 3: 'red' in column 1 is not a number"),
        ("1,2\n3,4\n", None, "2 points are too few; give at least 3"),
        ("x,y\n", None, "0 points are too few"),
        ("1,2\n1,2\n1,2\n", None, "all 3 points are equal"),
        ("1,2\n3\n5,6\n", None, "line 2: the row has 1 values where the first has 2"),
        ("x,y\n1,2\n3,4\n5,6\n", ["z"], "no column 'z'; it has x, y"),
        ("1,2\n3,4\n5,6\n", [2], "no column '2'; it has 2 without names, or count from 0 to 1"),
        ("1,2\n3,4\n5,6\n", [], "no columns are chosen"),
        ("", None, "0 bytes"),
        ("\n \n", None, "has no rows"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said_in_one_sentence(
    tmp_path: Path, text: str, columns: list[str | int] | None, message: str
) -> None:
    with pytest.raises(PointsError, match=message) as caught:
        read_points(written(tmp_path, text), columns)
    assert "points.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes(b"\xff\xfe1,2\n")
    with pytest.raises(PointsError, match="not text in UTF-8"):
        read_points(tmp_path / "points.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.csv", "there is no such file"),
        ("points.xlsx", "extension '.xlsx' is not known; use one of .csv, .npy, .parquet"),
        ("points", "extension '' is not known"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(PointsError, match=message):
        read_points(tmp_path / name)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.array([["a", "b"]] * 3), "not numbers"),
        (np.zeros((3, 2, 2)), "has 3 dimensions"),
        (np.array([[1, None]] * 3, dtype=object), "NumPy cannot read it"),
    ],
)
def test_arrays_that_are_no_points_are_refused(
    tmp_path: Path, table: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "points.npy", table, allow_pickle=True)
    with pytest.raises(PointsError, match=message):
        read_points(tmp_path / "points.npy")


@pytest.mark.parametrize("name", ["points.npy", "points.parquet"])
def test_files_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("1,2\n3,4\n")
    with pytest.raises(PointsError, match=name):
        read_points(tmp_path / name)


@pytest.mark.parametrize(
    ("column", "message"), [(["a", "b", "c"], "holds string"), ([1.0, None, 2.0], "is NaN")]
)
def test_unusable_parquet_columns_are_refused(
    tmp_path: Path, column: list[object], message: str
) -> None:
    parquet.write_table(pyarrow.table({"x": column}), tmp_path / "points.parquet")
    with pytest.raises(PointsError, match=message):
        read_points(tmp_path / "points.parquet")


def test_the_published_blobs_are_scikit_learns() -> None:
    from sklearn.datasets import make_blobs

    drawn = {"centers": 8, "n_features": 2, "random_state": 0x1337, "center_box": (-20, 20)}
    assert (blobs(101) == make_blobs(101, **drawn)[0]).all()


def test_reading_points_does_not_load_the_clustering_libraries() -> None:
    script = (
        "import sys, qtide.apps.clustering.points;"
        "print({'sklearn', 'numba', 'pyarrow', 'matplotlib'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout == b"set()\n"
