"""The page of the experiment: what was found in a sentence, the figures, and the table."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from qtide.experiments.sharing.figures import Drawn
from qtide.experiments.sharing.plan import Plan
from qtide.experiments.sharing.results import Row
from qtide.report import svg
from qtide.report.number import brief, percent, times

HEADINGS = (
    "α",
    "replicas",
    "occupancy",
    "expected",
    "total, s",
    "± s",
    "expected",
    "gain",
    "queue per job, s",
    "expected",
    "quantum, s",
)


def write_page(folder: Path, plan: Plan, rows: list[Row], figures: list[Drawn]) -> Path:
    """Write `report.html`, which needs no other file."""
    css = files("qtide.report").joinpath("report.css").read_text(encoding="utf-8")
    page = folder / "report.html"
    page.write_text(_document(css, plan, rows, figures), encoding="utf-8")
    return page


def sentence(rows: list[Row]) -> str:
    """What sharing has gained at most."""
    if not rows:
        return "Nothing is measured yet."
    best = max(rows, key=lambda row: row.gain)
    jobs = "1 job" if best.replicas == 1 else f"{best.replicas} jobs"
    return (
        f"With classical phases of {best.alpha:g} times the quantum ones, {jobs} that share the"
        f" QPU end {times(best.gain)} as fast as one after the other ({brief(best.total.mean)} s"
        f" against {brief(best.exclusive)} s), and the QPU works {percent(best.occupancy.mean)}"
        " of the time."
    )


def cells(row: Row) -> list[str]:
    """A row of the table."""
    n = row.replicas
    return [
        f"{row.alpha:g}",
        f"{n}",
        percent(row.occupancy.mean),
        percent(row.loop.occupancy(n)),
        f"{row.total.mean:.2f}",
        f"{row.total.sd:.2f}",
        f"{row.loop.total(n):.2f}",
        times(row.gain),
        f"{row.queue.mean:.2f}",
        f"{row.loop.queue(n):.2f}",
        f"{row.quantum.mean:.2f}",
    ]


def _document(css: str, plan: Plan, rows: list[Row], figures: list[Drawn]) -> str:
    pictures = "\n".join(_figure(each, number) for number, each in enumerate(figures))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sharing one QPU</title>
<style>
{css}</style>
</head>
<body>
<main>
<header>
<h1>Sharing one QPU</h1>
<p class="lead">{escape(sentence(rows))}</p>
</header>
{pictures}
<section aria-labelledby="figures">
<h2 id="figures">All figures</h2>
{_table(rows)}
</section>
<section aria-labelledby="notes">
<h2 id="notes">Notes</h2>
<ul>
{"".join(f"<li>{escape(note)}</li>" for note in notes(plan, rows))}
</ul>
</section>
</main>
</body>
</html>
"""


def notes(plan: Plan, rows: list[Row]) -> list[str]:
    """How it was measured."""
    graph = ",".join(map(str, plan.clustered))
    place = "jobs of Slurm with a licence each" if plan.cluster == "slurm" else "threads"
    done = max((row.repetitions for row in rows), default=0)
    loops = {row.alpha: row.loop for row in rows}
    cycles = [
        f"α = {alpha:g}: a job alone repeats {loop.cycles:.0f} cycles of {1000 * loop.quantum:.1f}"
        f" ms on the QPU and {1000 * loop.classical:.1f} ms beside it, so up to"
        f" {loop.knee:.1f} jobs fit without a queue."
        for alpha, loop in loops.items()
    ]
    return [
        f"Each replica colours the same clustered graph ({graph}) with the step {plan.sets}, as"
        f" {place}; {done} repetitions, bands of one standard deviation.",
        "After each task a replica sleeps α times as long as the QPU took. Replicas and the"
        " emulated QPU mostly wait; on a computer that is busy otherwise, they fall short of the"
        " prediction.",
        "The closed loop is the prediction for jobs of equal cycles on a QPU that serves first"
        " come, first served; its cycle is measured with one replica.",
        *cycles,
    ]


def _figure(drawn: Drawn, number: int) -> str:
    picture = svg.inline(drawn.figure, f"f{number}", drawn.words)
    return f"""<section><figure>
<div class="scroll" role="region" aria-label="{escape(drawn.words)}" tabindex="0">
{picture}
</div>
<figcaption>{escape(drawn.words)} The same picture as
<a href="{drawn.file.name}">PNG</a>.</figcaption>
</figure></section>"""


def _table(rows: list[Row]) -> str:
    heads = "".join(f'<th scope="col">{escape(each)}</th>' for each in HEADINGS)
    lines = []
    for row in rows:
        head, *rest = cells(row)
        datas = "".join(f"<td>{escape(each)}</td>" for each in rest)
        lines.append(f'<tr><th scope="row">{escape(head)}</th>{datas}</tr>')
    return f"""<div class="scroll" role="region" aria-labelledby="figures" tabindex="0">
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{chr(10).join(lines)}
</tbody>
</table>
</div>"""
