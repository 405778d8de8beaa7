"""The public surface: what it is, and that the reference describes all of it."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import pytest

import qtide
from tests.docs.reader import ROOT

SURFACE = """
CommandFailed CommandResult Comparison PhaseError QtideError Run Session Target TimedOut UsageError
classical command compare list_runs pretend program qpu quantum resume session task together
"""


def generated() -> Any:
    """The module that mkdocs calls."""
    found = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "generated.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_surface_is_what_was_promised() -> None:
    assert sorted(qtide.__all__) == SURFACE.split()
    assert qtide.__all__ == sorted(qtide.__all__)


@pytest.mark.parametrize("name", qtide.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    thing = getattr(qtide, name)
    assert callable(thing)
    assert inspect.getdoc(thing)


def test_the_reference_describes_every_name_and_every_method() -> None:
    made = generated()
    page = made.python()
    for name in qtide.__all__:
        assert f"### `qtide.{name}`" in page
    for kind in made.CLASSES:
        for name, member in inspect.getmembers(kind):
            own = not name.startswith("_") and (
                inspect.isfunction(member) or isinstance(member, property)
            )
            if own:
                assert f"#### `{kind.__name__}.{name}`" in page
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"
