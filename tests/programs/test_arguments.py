from pathlib import Path
from typing import Any

import pytest

from qtide import program
from qtide.errors import UsageError
from qtide.programs.arguments import parse, usage


@program
async def sample(
    points: Path,
    threshold: float = 0.8,
    most: int | None = None,
    fast: bool = False,
    method: list[str] = [],  # noqa: B006 - never changed
    *,
    title: str = "",
) -> None: ...


@pytest.mark.parametrize(
    ("words", "args", "kwargs"),
    [
        (["a.csv"], [Path("a.csv")], {}),
        (["a.csv", "0.5", "3"], [Path("a.csv"), 0.5, 3], {}),
        (["a.csv", "--most=4", "--fast"], [Path("a.csv")], {"most": 4, "fast": True}),
        (["--points", "b", "--fast=no"], [], {"points": Path("b"), "fast": False}),
        (["a", "--method", "x,y", "--method", "z"], [Path("a")], {"method": ["x", "y", "z"]}),
        (["a", "--title", "ü b"], [Path("a")], {"title": "ü b"}),
    ],
)
def test_words_become_values(words: list[str], args: list[Any], kwargs: dict[str, Any]) -> None:
    assert parse(sample, words) == (args, kwargs)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "x"], "threshold has to be of type float, not 'x'"),
        (["a", "--most"], "--most lacks its value"),
        (["a", "--colour", "red"], "neither qtide nor the program has an option --colour"),
        (["a", "1", "2", "yes", "m", "one more"], "'one more' is one too many"),
        (["a", "--points", "b"], "--points is given twice"),
        (["a", "--fast=perhaps"], "--fast is yes or no"),
    ],
)
def test_wrong_words_are_named(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse(sample, words)


def test_the_usage_shows_all_arguments() -> None:
    assert "POINTS [--threshold 0.8]" in usage(sample)


def test_missing_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="missing a required argument: 'points'"):
        sample.prepare([], {}).close()


def test_parameters_named_seed_and_folder_get_the_runs_own() -> None:
    @program
    async def both(folder: Path, seed: int) -> tuple[Path, int]:
        return folder, seed

    @program
    async def neither() -> None: ...

    with pytest.raises(StopIteration) as end:
        both.prepare([], {}, seed=7, folder=Path("here")).send(None)
    assert end.value.value == (Path("here"), 7)
    neither.prepare([], {}, seed=7, folder=Path("here")).close()
