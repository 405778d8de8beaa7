import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from qtide.interfaces.report.page import HUES, SVG, inline
from qtide.interfaces.report.timeline import draw
from tests.core.ledger_samples import panel, two_jobs


@pytest.fixture(scope="module")
def picture() -> str:
    return inline(draw([panel("static", two_jobs())]), "g2", 'two "jobs" <here>')


def test_it_is_described(picture: str) -> None:
    root = ElementTree.fromstring(picture)
    assert (root.get("role"), root.get("aria-label")) == ("img", 'two "jobs" <here>')


def test_its_colours_are_the_pages(picture: str) -> None:
    assert "var(--ink)" in picture
    assert "var(--hue-1)" in picture
    assert "opacity: var(--tint)" in picture
    assert not re.search(r": #[0-9a-f]{6}", picture)


def test_plain_axes_have_no_background_of_their_own() -> None:
    figure = Figure()
    figure.subplots().barh(["a"], [1.0], color=HUES[0])
    assert "#ffffff" not in inline(figure, "x", "a bar")


def test_only_the_pages_own_tint_follows_the_colour_mode() -> None:
    figure = Figure()
    axis = figure.subplots()
    axis.bar(["a"], [1.0], alpha=0.3)
    axis.bar(["b"], [1.0], alpha=0.32)
    written = inline(figure, "x", "two bars")
    assert "opacity: var(--tint)" in written
    assert "opacity: 0.32" in written


def test_its_ids_are_its_own_and_found(picture: str) -> None:
    ids = set(re.findall(r' id="([^"]+)"', picture))
    uses = set(re.findall(r'(?:url\(|href=")#([^)"]+)', picture))
    assert all(each.startswith("g2-") for each in ids)
    assert uses
    assert uses <= ids


def test_it_has_no_style_sheet_that_would_reach_the_page(picture: str) -> None:
    root = ElementTree.fromstring(picture)
    assert list(root.iter(f"{{{SVG}}}style")) == []
    assert "width" not in root.attrib
