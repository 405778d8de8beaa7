"""Compiled modules are kept elsewhere if their own place has none, and only where it is safe."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from qtide.core import files

Scene = Callable[[bool], str | None]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Where modules are compiled to, if this one is compiled in its place or not."""

    def play(compiled: bool) -> str | None:
        monkeypatch.setattr(files, "FOLDER", tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setattr(sys, "pycache_prefix", None)
        place = tmp_path if compiled else tmp_path / "nothing"
        monkeypatch.setattr(files, "__spec__", SimpleNamespace(cached=str(place)))
        files.keep_bytecode()
        assert sys.dont_write_bytecode == (sys.pycache_prefix is None)
        return sys.pycache_prefix

    return play


def own(tmp_path: Path) -> Path:
    return tmp_path / f"qtide-bytecode-{os.getuid()}"


def test_what_is_compiled_in_its_place_stays_there(scene: Scene) -> None:
    assert scene(True) is None


def test_a_folder_that_is_ours_alone(scene: Scene, tmp_path: Path) -> None:
    assert scene(False) == str(own(tmp_path))
    assert own(tmp_path).stat().st_mode & 0o777 == 0o700
    assert scene(False) == str(own(tmp_path))


def test_a_folder_that_others_can_write_to_is_not_used(scene: Scene, tmp_path: Path) -> None:
    own(tmp_path).mkdir()
    own(tmp_path).chmod(0o777)
    assert scene(False) is None


def test_a_link_to_elsewhere_is_not_used(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    own(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert scene(False) is None


def test_where_files_may_be_torn_nothing_is_compiled(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (2**20, 2**20))
    assert scene(False) is None
    monkeypatch.undo()
    monkeypatch.setattr(files, "LEAST_FREE", 2**62)
    assert scene(False) is None
