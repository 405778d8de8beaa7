"""Self-contained HTML pages: findings, sections with tables and pictures, notes.

Runs, the demonstration, simulations and experiments all use this module for their pages.
A page needs no other file, follows the reader's light or dark mode, and is readable on a phone.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from qtide.core.files import write_whole
from qtide.interfaces.report.table import Cell

HUES = ("#0072b2", "#d55e00", "#009e73", "#b0609a", "#56a5d8", "#c98a00", "#6b5fb5", "#8a6d3b")
INK = "#1f2430"
MUTED = "#5b6473"
LINE = "#d3d8e0"
TRACK = "#f2f4f7"
TINT = 0.30
"""Opacity of pale areas."""
STYLE: Any = {
    "text.parse_math": False,  # a dollar sign in a label does not start a formula
    "svg.fonttype": "none",
    "svg.hashsalt": "qtide",
    "hatch.linewidth": 0.8,
}
"""Matplotlib settings for all pictures."""


def hue(index: int) -> str:
    """Return the colour of an item by its zero-based index."""
    return HUES[index % len(HUES)]


@dataclass(frozen=True)
class PageSection:
    """A section of a page; `name` is its anchor, `body` is HTML."""

    name: str
    title: str
    body: str


@dataclass(frozen=True)
class Page:
    """A page; the findings come first, the notes last."""

    title: str
    findings: Sequence[str]
    sections: Sequence[PageSection]
    notes: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """Write the page; characters that cannot be encoded are replaced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.html().encode(errors="replace"))

    def html(self) -> str:
        """Return the whole document."""
        sections = list(self.sections)
        if self.notes:
            sections.append(PageSection("notes", "Notes", bullets(self.notes)))
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<style>
{stylesheet()}</style>
</head>
<body>
<main>
<header>
<h1>{escape(self.title)}</h1>
{"".join(f'<p class="lead">{escape(each)}</p>' for each in self.findings)}
</header>
{"".join(map(_section, sections))}
</main>
</body>
</html>
"""


def _section(section: PageSection) -> str:
    return f"""<section aria-labelledby="{section.name}">
<h2 id="{section.name}">{escape(section.title)}</h2>
{section.body}
</section>
"""


def table(label: str, headings: Sequence[str], *bodies: Iterable[Sequence[Cell]]) -> str:
    """Return a table that scrolls sideways; `label` is the anchor of the section that names it.

    Each body is a group of rows, separated by a line. The first cell of a row is its heading.
    """
    heads = "".join(f'<th scope="col">{_unbroken(title)}</th>' for title in headings)
    groups = "\n".join(f"<tbody>\n{chr(10).join(map(_row, body))}\n</tbody>" for body in bodies)
    return f"""<div class="scroll" role="region" aria-labelledby="{label}" tabindex="0">
<table>
<thead><tr>{heads}</tr></thead>
{groups}
</table>
</div>"""


def _unbroken(title: str) -> str:
    """Allow a heading to break at spaces but not at hyphens, as in node-s."""
    return escape(title).replace("-", "\N{NON-BREAKING HYPHEN}")


def _row(line: Sequence[Cell]) -> str:
    head, *rest = line
    text = escape(head.text)
    text = f'<a href="#{head.to}">{text}</a>' if head.to else text
    return f'<tr><th scope="row">{text}</th>{"".join(map(_data, rest))}</tr>'


def _data(cell: Cell) -> str:
    text = escape(cell.text)
    return f'<td class="best"><strong>{text}</strong></td>' if cell.best else f"<td>{text}</td>"


def bullets(lines: Iterable[str]) -> str:
    """Return a bulleted list."""
    return "<ul>\n" + "\n".join(f"<li>{escape(each)}</li>" for each in lines) + "\n</ul>"


def hint(text: str) -> str:
    """Return a paragraph in small print."""
    return f'<p class="hint">{escape(text)}</p>'


def picture(svg: str, caption: str, label: str, copies: Sequence[str] = ()) -> str:
    """Return a captioned picture; `copies` names files beside the page that show the same."""
    links = ", ".join(f'<a href="{name}">{Path(name).suffix[1:].upper()}</a>' for name in copies)
    also = f" The same picture as {links}." if links else ""
    return f"""<figure>
<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">
{svg}
</div>
<figcaption>{escape(caption)}{also}</figcaption>
</figure>"""


def small_pictures(drawn: Iterable[tuple[str, str]]) -> str:
    """Return captioned pictures, as many side by side as fit; on a phone, one below the other."""
    figures = "\n".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>\n{svg}</figure>"
        for caption, svg in drawn
    )
    return f'<div class="small">\n{figures}\n</div>'


SVG = "http://www.w3.org/2000/svg"
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    TRACK: "var(--track)",
} | {colour: f"var(--hue-{index})" for index, colour in enumerate(HUES)}
"""Replacements by style sheet variables, so that pictures are legible in both colour modes."""

ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def inline(figure: Figure, name: str, description: str) -> str:
    """Return the figure as SVG; `name` prefixes its ids, `description` is for screen readers."""
    for axes in figure.axes:
        axes.patch.set_visible(False)  # white would glare in dark mode
    buffer = StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for each in list(root):  # metadata and the style sheet would affect the rest of the page
        if each.tag == f"{{{SVG}}}metadata" or each.find(f"{{{SVG}}}style") is not None:
            root.remove(each)
    for element in root.iter():
        for key, value in element.attrib.items():
            element.set(key, _adapted(key, value, name))
    for size in ("width", "height"):
        del root.attrib[size]
    root.attrib |= {"role": "img", "aria-label": description}
    return ElementTree.tostring(root, encoding="unicode")


PNG_DPI = 100
"""Resolution of PNG pictures in notebooks, in dots per inch."""


def safe_inline(figure: Figure, name: str, description: str) -> str:
    """Return the figure for a notebook that may be untrusted when it is opened again.

    JupyterLab then drops styles and SVG elements but keeps their text. So show a PNG and hide the
    SVG unless the notebook's style is applied.
    """
    picture = b64encode(png(figure)).decode()
    image = f'<img class="still" alt="{escape(description)}" src="data:image/png;base64,{picture}">'
    return f'{image}<div class="live" hidden>{inline(figure, name, description)}</div>'


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG."""
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", facecolor="white", dpi=PNG_DPI)
    return buffer.getvalue()


def _adapted(key: str, value: str, name: str) -> str:
    """Return an attribute with the page's colours and with unique ids."""
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        for fixed, variable in VARIABLES.items():
            value = value.replace(fixed, variable)
        value = re.sub(rf"opacity: {TINT}(?!\d)", "opacity: var(--tint)", value)
    return re.sub(r"^#|(?<=url\()#", f"#{name}-", value)


@cache
def stylesheet() -> str:
    """Return the style sheet of every page."""
    return files("qtide.interfaces.report").joinpath("page.css").read_text(encoding="utf-8")


COLOURS = re.compile(r":root \{(.*?)\n *\}", re.DOTALL)
"""Matches the colours in the style sheet: first the light ones, then the dark ones."""
NOTEBOOK_STYLE = """
.qtide {{{light}}}
@media (prefers-color-scheme: dark) {{ .qtide {{{dark}}} }}
[data-jp-theme-light="true"] .qtide {{{light}}}
[data-jp-theme-light="false"] .qtide {{{dark}}}
.qtide {{ background: var(--page); color: var(--ink); padding: .5rem; overflow-x: auto; }}
.qtide table {{ border-collapse: collapse; }}
.qtide th, .qtide td {{ padding: .2rem .6rem; text-align: right; color: var(--ink);
  background: var(--page); }}
.qtide thead th {{ border-bottom: 1px solid var(--muted); color: var(--muted); }}
.qtide td.best {{ background: var(--best-back); color: var(--best); }}
.qtide .still {{ display: none; }}
.qtide .live {{ display: block; }}
.qtide svg {{ display: block; width: 100%; min-width: 44rem; height: auto; }}
"""


def notebook_element(title: str, body: str, lines: Iterable[str]) -> str:
    """Return an HTML element with its own style for a notebook: title, body and sentences."""
    light, dark = (found.strip() for found in COLOURS.findall(stylesheet())[:2])
    style = NOTEBOOK_STYLE.format(light=light, dark=dark)
    sentences = "".join(f"<p>{escape(line)}</p>" for line in lines)
    content = f"<h4>{escape(title)}</h4>{body}{sentences}"
    return f'<style>{style}</style>\n<div class="qtide">\n{content}\n</div>'
