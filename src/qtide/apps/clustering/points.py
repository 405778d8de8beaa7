"""Read point sets; if one cannot be used, say why in one sentence."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from qtide.apps.clustering.arrays import Points
from qtide.core.errors import UsageError

FEWEST_POINTS = 3
BLOBS = 8
GREATEST = 1e150  # beyond this, squares of differences may overflow
DELIMITERS = ",;\t"

Columns = Sequence[str | int] | None
"""Names or zero-based indices of the columns to read; None for all."""


class PointsError(UsageError, ValueError):
    """A point set that cannot be clustered; says what is wrong, where, and what to do."""


def read_points(path: str | Path, columns: Columns = None) -> Points:
    """Read and check the points of a .csv, .npy or .parquet file."""
    file = Path(path)
    readers = {".csv": _read_csv, ".npy": _read_npy, ".parquet": _read_parquet}
    if file.suffix.lower() not in readers:
        raise PointsError(
            f"{file}: the extension '{file.suffix}' is not known;"
            f" use one of {', '.join(sorted(readers))}."
        )
    if not file.is_file():
        raise PointsError(f"{file}: there is no such file; check the path.")
    if file.stat().st_size == 0:
        raise PointsError(f"{file}: the file has 0 bytes; write it again.")
    return checked(readers[file.suffix.lower()](file, columns), str(file))


def blobs(points: int = 80_000) -> Points:
    """Generate the published data set: eight Gaussian blobs in the plane.

    The numbers equal those of scikit-learn's make_blobs(points, centers=8, n_features=2,
    random_state=0x1337, center_box=(-20, 20)), without its four-second import.
    """
    draw = np.random.RandomState(0x1337)
    centres = draw.uniform(-20, 20, size=(BLOBS, 2))
    sizes = [points // BLOBS + (number < points % BLOBS) for number in range(BLOBS)]
    found = [
        draw.normal(centre, size=(size, 2)) for centre, size in zip(centres, sizes, strict=True)
    ]
    order = np.arange(points)
    draw.shuffle(order)
    return checked(np.concatenate(found)[order], f"blobs({points})")


def checked(points: Points, source: str) -> Points:
    """Return the points; raise PointsError if they cannot be clustered."""
    if len(points) < FEWEST_POINTS:
        raise PointsError(
            f"{source}: {len(points)} points are too few; give at least {FEWEST_POINTS}."
        )
    if points.shape[1] == 0:
        raise PointsError(f"{source}: the points have no columns; give at least one.")
    _check_finite(points, source)
    if (points == points[0]).all():
        raise PointsError(
            f"{source}: all {len(points)} points are equal; check the columns chosen."
        )
    return points


def _check_finite(points: Points, source: str) -> None:
    bad = np.argwhere(~(np.abs(points) <= GREATEST))
    if len(bad) == 0:
        return
    row, column = bad[0]
    value = points[row, column]
    what = "NaN" if np.isnan(value) else "infinite" if np.isinf(value) else f"{value:g}, too large"
    raise PointsError(
        f"{source}: point {row + 1}, coordinate {column + 1} is {what};"
        f" remove or replace such values ({len(bad)} in all)."
    )


def _read_csv(file: Path, columns: Columns) -> Points:
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            return _parse_csv(file, stream, columns)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise PointsError(
            f"{file}: the file is not text in UTF-8 ({problem}); export it as CSV again."
        ) from problem


def _parse_csv(file: Path, stream: TextIO, columns: Columns) -> Points:
    """Parse the chosen columns as numbers; a first line with text is the header."""
    first_line = stream.readline()
    stream.seek(0)
    delimiter = max(DELIMITERS, key=first_line.count)
    lines = _filled(csv.reader(stream, delimiter=delimiter))
    number, first = next(lines, (0, []))
    if not first:
        raise PointsError(f"{file}: the file has no rows; write it again.")
    header = None if all(_is_number(text) for text in first) else [text.strip() for text in first]
    places = _places(file, header, len(first), columns)
    values = array("d")
    if header is None:
        values.extend(_numbers(file, number, first, len(first), places))
    for number, row in lines:
        values.extend(_numbers(file, number, row, len(first), places))
    return np.array(values, dtype=np.float64).reshape(-1, len(places))


def _filled(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows with their line numbers."""
    return ((reader.line_num, row) for row in reader if any(text.strip() for text in row))


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False


def _numbers(file: Path, line: int, row: list[str], width: int, places: list[int]) -> list[float]:
    if len(row) != width:
        raise PointsError(
            f"{file}, line {line}: the row has {len(row)} values where the first has {width};"
            f" give all rows the same length."
        )
    try:
        return [float(row[place]) for place in places]
    except ValueError:
        place = next(place for place in places if not _is_number(row[place]))
        raise PointsError(
            f"{file}, line {line}: '{row[place]}' in column {place} is not a number;"
            f" correct it or choose other columns."
        ) from None


def _places(file: Path, header: list[str] | None, width: int, columns: Columns) -> list[int]:
    """Indices of the chosen columns."""
    if columns is None:
        return list(range(width))
    if not columns:
        raise PointsError(
            f"{file}: no columns are chosen; choose at least one, or name none for all."
        )
    return [_place(file, header, width, column) for column in columns]


def _place(file: Path, header: list[str] | None, width: int, column: str | int) -> int:
    if isinstance(column, int) and 0 <= column < width:
        return column
    if isinstance(column, str) and header is not None and column in header:
        return header.index(column)
    there = f"it has {', '.join(header)}" if header else f"it has {width} without names"
    raise PointsError(
        f"{file}: there is no column '{column}'; {there}, or count from 0 to {width - 1}."
    )


def _read_npy(file: Path, columns: Columns) -> Points:
    try:
        table = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as problem:
        raise PointsError(
            f"{file}: NumPy cannot read it ({problem}); save it as a plain array."
        ) from problem
    if table.dtype.kind not in "fiub":
        raise PointsError(
            f"{file}: the array holds {table.dtype}, not numbers; convert it to floats."
        )
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise PointsError(
            f"{file}: the array has {table.ndim} dimensions; give two, with one row per point."
        )
    places = _places(file, None, table.shape[1], columns)
    return np.ascontiguousarray(table[:, places], dtype=np.float64)


def _read_parquet(file: Path, columns: Columns) -> Points:
    import pyarrow
    from pyarrow import parquet

    try:
        handle = parquet.ParquetFile(file)
        names = list(handle.schema_arrow.names)
        chosen = [names[place] for place in _places(file, names, len(names), columns)]
        table = handle.read(columns=chosen)
    except pyarrow.ArrowException as problem:
        raise PointsError(
            f"{file}: it cannot be read as Parquet ({problem}); write it again."
        ) from problem
    values = [_parquet_column(file, name, table.column(name)) for name in chosen]
    return np.stack(values, axis=1) if values else np.empty((table.num_rows, 0))


def _parquet_column(file: Path, name: str, column: Any) -> Any:
    """Convert a column to floats, with NaN for missing values."""
    from pyarrow import types

    kind = column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise PointsError(
            f"{file}: column '{name}' holds {kind}, not numbers; choose other columns."
        )
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
