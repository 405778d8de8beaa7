from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from annotated_types import Ge, Interval

from qtide import program
from qtide.core.errors import UsageError
from qtide.programs.arguments import parse, rows, usage, value_of


class Spot(NamedTuple):
    x: int
    y: float


@dataclass
class Settings:
    steps: int
    rate: float = 0.1


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
        (["a", "x"], "threshold cannot be 'x': it should be a valid number$"),
        (["a", "--most"], "--most needs a value"),
        (["a", "--colour", "red"], "has an option --colour; the program's own are: --points"),
        (["a", "--mist", "4"], "an option --mist; did you mean --most\\? The program's own are"),
        (["a", "1", "2", "yes", "m", "one more"], "'one more' is one too many"),
        (["a", "--points", "b"], "--points is given twice"),
        (["a", "--fast=perhaps"], "fast cannot be 'perhaps': it should be a valid boolean"),
    ],
)
def test_wrong_words_are_named(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse(sample, words)


def test_the_usage_shows_all_arguments() -> None:
    assert "POINTS [--threshold 0.8] [--most] [--fast]" in usage(sample)


def test_the_help_has_a_row_for_each_argument() -> None:
    @program
    async def helped(
        points: Path, *, seed: int, most: int | None = None, by: str = "x"
    ) -> None: ...

    assert rows(helped) == [
        ("POINTS", "Path  [required]"),
        ("--seed", "int  [default: the run's own]"),
        ("--most", "int | None"),
        ("--by", "str  [default: x]"),
    ]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1


@pytest.mark.parametrize(
    ("kind", "texts", "value"),
    [
        (list[int], ["1,2", "3"], [1, 2, 3]),
        (list[int], [""], []),
        (tuple[int, float], ["1,2.5"], (1, 2.5)),
        (tuple[Path, ...], ["a", "b"], (Path("a"), Path("b"))),
        (set[int] | None, ["1,1"], {1}),
        (Colour, ["red"], Colour.RED),
        (Level, ["1"], Level.LOW),
        (list[Colour], ["red,blue"], [Colour.RED, Colour.BLUE]),
        (Literal["fast", 3], ["3"], 3),
        (int | None, ["1", "2"], 2),
        (int | str, ["2"], 2),
        (str, ["a,b"], "a,b"),
        (bool, ["no"], False),
        (dict[str, int], ['{"a": 1}'], {"a": 1}),
        (Any, ["as it is"], "as it is"),
        (Colour, ["BLUE"], Colour.BLUE),
        (Level, ["low"], Level.LOW),
        (list[int], ["[1, 2]"], [1, 2]),
        (list[tuple[int, int]], ["[[1, 2]]"], [(1, 2)]),
        (Spot, ["1,2"], Spot(1, 2.0)),
        (Settings, ["steps=3,rate=0.5"], Settings(3, 0.5)),
        (Settings, ['{"steps": 3}'], Settings(3)),
        (dict[str, int], ["a=1,b=2"], {"a": 1, "b": 2}),
        (int | None, ["none"], None),
        (type(sample), ["no type for words"], "no type for words"),
    ],
)
def test_values_by_type(kind: Any, texts: list[str], value: Any) -> None:
    found = value_of("it", kind, texts)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (list[int], "1,x", "argument it cannot be '1,x': it should be a valid integer"),
        (Colour, "pink", "it should be 'red' or 'blue'"),
        (Literal["fast", 3], "slow", "it should be 'fast' or 3"),
        (tuple[int, int], "1", r"the argument it cannot be '1': it should be tuple\[int, int\]"),
        (Annotated[int, Ge(1)], "0", "it should be greater than or equal to 1"),
        (Annotated[float, Interval(ge=0, lt=9)], "nan", "it should be less than 9"),
    ],
)
def test_a_wrong_value_names_the_argument(kind: Any, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        value_of("it", kind, [text])


def test_the_rest_of_the_words_and_a_flag_that_is_denied() -> None:
    @program
    async def many(first: int, *others: int, fast: bool = True) -> None: ...

    assert parse(many, ["1", "2", "3", "--no-fast"]) == ([1, 2, 3], {"fast": False})


def test_a_flag_may_have_its_value_in_words() -> None:
    @program
    async def flags(*, fast: bool = True, slow: bool = False) -> None: ...

    given = {"fast": False, "slow": True}
    assert parse(flags, ["--fast", "false", "--slow", "true"]) == ([], given)


def test_the_help_shows_choices_and_what_stands_after_two_dashes() -> None:
    @program
    async def chosen(
        colour: Colour = Colour.RED,
        mode: Literal["a", "b"] = "a",
        nodes: Annotated[int, Ge(1)] = 2,
        seed: int = 0,
    ) -> None: ...

    assert rows(chosen, {"nodes", "seed"}) == [
        ("--colour", "red|blue  [default: red]"),
        ("--mode", "a|b  [default: a]"),
        ("--nodes", "int  (after --)  [default: 2]"),
        ("--seed", "int  [default: the run's own]"),
    ]


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
