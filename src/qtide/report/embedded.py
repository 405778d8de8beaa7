"""Table and timelines within a page that is not ours, such as a notebook's, light or dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from qtide.report import svg, timeline
from qtide.report.page import Group, description, resource, table_of
from qtide.report.table import Row

COLOURS = re.compile(r":root \{(.*?)\n *\}", re.DOTALL)
"""The colours of our own page: first the light ones, then the dark ones."""
STYLE = """
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
.qtide svg {{ display: block; width: 100%; min-width: 44rem; height: auto; }}
"""


def embedded(title: str, groups: Sequence[Group], lines: Sequence[str], name: str) -> str:
    """An element with its own style; `name` makes its ids unique on the page."""
    rows = [
        Row(each.strategy, group.jobs, each.metrics) for group in groups for each in group.panels
    ]
    pictures = (
        svg.inline(timeline.draw(group.panels), f"{name}-{number}", description(group))
        for number, group in enumerate(groups)
    )
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    parts = (f"<h4>{escape(title)}</h4>", table_of(rows), *pictures, said)
    return f'<style>{_style()}</style>\n<div class="qtide">\n{"".join(parts)}\n</div>'


def _style() -> str:
    light, dark = (found.strip() for found in COLOURS.findall(resource("report.css"))[:2])
    return STYLE.format(light=light, dark=dark)
