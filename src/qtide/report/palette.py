"""Colours: one hue per job, also distinct for colour-blind readers (after Okabe and Ito)."""

from __future__ import annotations

HUES = ("#0072b2", "#d55e00", "#009e73", "#b0609a", "#56a5d8", "#c98a00", "#6b5fb5", "#8a6d3b")
INK = "#1f2430"
MUTED = "#5b6473"
LINE = "#d3d8e0"
TRACK = "#f2f4f7"
TINT = 0.30
"""The opacity of held stretches."""


def hue(index: int) -> str:
    """The colour of the job with this number, counted from zero."""
    return HUES[index % len(HUES)]
