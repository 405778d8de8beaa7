"""A figure as SVG inside a page: it takes the page's colours, and its ids are unique there."""

from __future__ import annotations

import re
from io import StringIO
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from qtide.report.palette import HUES, INK, LINE, MUTED, TINT, TRACK
from qtide.report.timeline import STYLE

SVG = "http://www.w3.org/2000/svg"
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    TRACK: "var(--track)",
    f"opacity: {TINT}": "opacity: var(--tint)",
} | {hue: f"var(--hue-{index})" for index, hue in enumerate(HUES)}
"""What the page's style decides, so that the picture is legible in light and dark mode."""

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def inline(figure: Figure, name: str, description: str) -> str:
    """The figure as an SVG element; `name` prefixes its ids, screen readers read `description`."""
    root = ElementTree.fromstring(_text(figure))
    _drop_globals(root)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _adapt(key, value, name))
    for size in ("width", "height"):
        del root.attrib[size]
    root.attrib |= {"role": "img", "aria-label": description}
    return ElementTree.tostring(root, encoding="unicode")


def _drop_globals(root: ElementTree.Element) -> None:
    """Remove what would affect the rest of the page: the metadata and the style sheet."""
    for each in list(root):
        if each.tag == f"{{{SVG}}}metadata" or each.find(f"{{{SVG}}}style") is not None:
            root.remove(each)


def _text(figure: Figure) -> str:
    buffer = StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    return buffer.getvalue()


def _adapt(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        for fixed, variable in VARIABLES.items():
            value = value.replace(fixed, variable)
    return re.sub(r"^#|(?<=url\()#", f"#{name}-", value)
