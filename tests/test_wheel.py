"""The wheel, with its core dependencies alone, runs outside of the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
LIMIT = 600.0
"""Seconds, for a computer that has to download the dependencies first."""
SOURCES = ROOT / "src"


def uv(*words: object) -> None:
    command = [sys.executable, "-m", "uv", "--quiet", *map(str, words)]
    subprocess.run(command, check=True, timeout=LIMIT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--wheel", "--no-build-isolation", "--out-dir", folder, ROOT)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def qtide(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a new environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    uv("venv", "--clear", "--python", sys.executable, folder)
    pinned = ("--constraint", ROOT / "constraints.txt", "--only-binary", ":all:")
    uv("pip", "install", *pinned, "--python", folder / "bin" / "python", wheel)
    return folder / "bin" / "qtide"


def called(qtide: Path, folder: Path, *words: str, code: int = 0) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "QTIDE_"))}
    done = subprocess.run(
        [qtide, *words],
        cwd=folder,
        env=environment | {"XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_it_has_the_files_that_are_no_modules(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    files = (
        each for each in SOURCES.rglob("*") if each.is_file() and "__pycache__" not in each.parts
    )
    data = {str(each.relative_to(SOURCES)) for each in files if each.suffix != ".py"}
    assert "qtide/py.typed" in data
    assert data - names == set()
    assert not [each for each in names if each.startswith(("tests/", "docs/"))]


def test_it_runs_a_program_and_reports_it(qtide: Path, tmp_path: Path) -> None:
    assert called(qtide, tmp_path, "--version").startswith("qtide ")
    words = ("run", "synthetic", "published", "--time-scale", "0.001", "--iterations", "1")
    run = json.loads(called(qtide, tmp_path, *words, "--qpu", "neutral-atom", "--json"))
    assert run["state"] == "done"
    made = json.loads(called(qtide, tmp_path, "report", "last", "--json"))
    assert "<svg" in (tmp_path / made["page"]).read_text()


@pytest.mark.parametrize("words", [("serve", "--demo"), ("demo",)])
def test_what_needs_more_packages_says_which(
    qtide: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    said = called(qtide, tmp_path, *words, code=2)
    assert said.count("\n") == 1 and "is missing" in said and "serve" in said
