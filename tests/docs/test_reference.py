"""The public surface: what it is, and that the reference describes all of it."""

from __future__ import annotations

import inspect

import pytest

import qtide
from docs.generated import CLASSES, python

SURFACE = """
Comparison PhaseError QtideError Run Session Target TimedOut UsageError classical compare pretend
program qpu quantum resume runs session task together
"""


def test_the_surface_is_what_was_promised() -> None:
    assert sorted(qtide.__all__) == SURFACE.split()
    assert qtide.__all__ == sorted(qtide.__all__)


@pytest.mark.parametrize("name", qtide.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    thing = getattr(qtide, name)
    assert callable(thing)
    assert inspect.getdoc(thing)


def test_the_reference_describes_every_name_and_every_method() -> None:
    page = python()
    for name in qtide.__all__:
        assert f"### `qtide.{name}`" in page
    for kind in CLASSES:
        for name, member in inspect.getmembers(kind):
            own = not name.startswith("_") and (
                inspect.isfunction(member) or isinstance(member, property)
            )
            if own:
                assert f"#### `{kind.__name__}.{name}`" in page
                assert inspect.getdoc(member), f"{kind.__name__}.{name}"
