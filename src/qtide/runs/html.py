"""Runs in a notebook: the table and the timelines, legible on light and on dark pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from qtide.report.embedded import embedded
from qtide.report.page import Group
from qtide.report.panel import Panel
from qtide.runs.comparison import Case

_numbers = count(1)
"""Ids are unique on the whole page of a notebook."""


def shown(title: str, cases: Sequence[Case], lines: Sequence[str] = ()) -> str:
    """Cases as an element of a page."""
    groups: dict[int, list[Panel]] = defaultdict(list)
    for case in cases:
        groups[case.jobs].append(case.panel())
    made = [Group(jobs, tuple(panels)) for jobs, panels in groups.items()]
    return embedded(title, made, lines, f"qtide-{next(_numbers)}")
