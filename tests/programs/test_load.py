from pathlib import Path

import pytest

from qtide.core.errors import UsageError
from qtide.programs.program import APPS, load, located

ONE = "from qtide import program\n@program\nasync def {name}(): ...\n"


def file(tmp_path: Path, stem: str, text: str) -> str:
    path = tmp_path / f"{stem}.py"
    path.write_text(text)
    return str(path)


def test_the_only_program_of_a_file(tmp_path: Path) -> None:
    assert load(file(tmp_path, "load_one", ONE.format(name="alone"))).name == "alone"


def test_a_program_by_name(tmp_path: Path) -> None:
    both = ONE.format(name="first") + ONE.format(name="second")
    path = file(tmp_path, "load_two", both)
    assert load(f"{path}:second").name == "second"
    with pytest.raises(UsageError, match=r"which program is meant.*first, second"):
        load(path)
    with pytest.raises(UsageError, match="no program 'third'"):
        load(f"{path}:third")


def test_what_lies_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    file(tmp_path, "load_helper", "NUMBER = 3\n")
    text = "from load_helper import NUMBER\n" + ONE.format(name="helped")
    assert load(file(tmp_path, "load_helped", text)).name == "helped"


def test_an_application_and_a_module() -> None:
    assert load("synthetic").name == "synthetic"
    assert load("qtide.apps.synthetic:synthetic").name == "synthetic"


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nowhere.py", "there is no file nowhere.py"),
        ("nonsense", "'nonsense' is not a program.* applications clustering, colouring, synthetic"),
        ("no.such.module:x", "cannot be imported"),
    ],
)
def test_what_is_not_there_is_named(reference: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load(reference)


@pytest.mark.parametrize(
    ("stem", "text", "sentence"),
    [
        ("load_none", "x = 1\n", "mark an async function with @program"),
        ("load_broken", "def (\n", "load_broken.py:1 is not valid Python"),
        ("load_lost", "import no_such_thing\n", "No module named 'no_such_thing'"),
        (
            "load_wrong",
            "from math import tangent\n",
            r"load_wrong cannot be imported: ImportError: .*tangent.*\n.*load_wrong.py:1 in",
        ),
        ("load_exit", "import sys\nsys.exit(3)\n", "load_exit cannot be imported: SystemExit: 3"),
        ("pytest", "x = 1\n", "the name of another Python module; rename it"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, stem: str, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load(file(tmp_path, stem, text))


def test_a_file_is_located_from_anywhere() -> None:
    assert located("p.py:x") == f"{Path.cwd()}/p.py:x"
    assert located("synthetic") == "synthetic"


def test_an_application_that_is_no_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(APPS, "load", lambda _: "words")
    with pytest.raises(
        UsageError, match="the application 'synthetic' is not a program, but 'words'"
    ):
        load("synthetic")
