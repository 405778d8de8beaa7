"""The page of a simulation: a table and its pictures in one HTML file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path

from qtide.twin.simulate import Case

PICTURES = {
    "turnaround": "turnaround of a hybrid job, s",
    "node_seconds": "node-seconds of a hybrid job",
    "qpu_occupancy": "occupancy of the QPUs",
    "others_wait": "wait of the others' jobs, s",
}
STYLE = "body{font-family:sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right}"


def write_page(file: Path, title: str, cases: Sequence[Case]) -> None:
    """Write the page; intervals are of 95 % confidence."""
    rows = [{"strategy": _name(case)} | _cells(case) for case in cases]
    heads = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"<!doctype html><meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><p>Virtual time; means over replications with their 95 % "
        f"confidence intervals.</p><img alt='bars' src='data:image/png;base64,{_bars(cases)}'>"
        f"<table><tr>{heads}</tr>{lines}</table>"
    )


def _name(case: Case) -> str:
    return f"{case.policy.strategy}, {case.policy.vqpus} vQPU"


def _cells(case: Case) -> dict[str, str]:
    return {
        name.replace("_", " "): f"{each.mean:,.4g} ± {each.half:,.2g}"
        for name, each in case.estimates().items()
    }


def _bars(cases: Sequence[Case]) -> str:
    """The pictures, as PNG in base 64."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.2 + 0.5 * len(cases) * 2), layout="constrained")
    axes = figure.subplots(2, 2).flat
    names = [_name(case) for case in cases]
    for axis, (name, title) in zip(axes, PICTURES.items(), strict=True):
        found = [case.estimates()[name] for case in cases]
        axis.barh(names, [each.mean for each in found], xerr=[each.half for each in found])
        axis.invert_yaxis()
        axis.set_title(title)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return b64encode(buffer.getvalue()).decode()
