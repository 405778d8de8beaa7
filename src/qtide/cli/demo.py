"""qtide demo: strategies and sharing on this computer, three sentences, one page."""

from __future__ import annotations

from pathlib import Path

from qtide.cli import options
from qtide.cli.console import as_json, err, out
from qtide.cli.output import show_table
from qtide.cli.progress import Progress
from qtide.runs.comparison import Case, line
from qtide.runs.folder import stamp


def demo(runs: options.Runs = options.RUNS, json: options.Json = False) -> None:
    """Show in two minutes what qtide does: real clustering jobs, every strategy, a shared QPU.

    Example: qtide demo
    """
    from qtide.demo.story import play_story, require

    require()
    progress = Progress(err, lines=False)

    def ended(case: Case) -> None:
        progress.note(f"  {line(case)}")

    folder = Path(runs) / f"demo-{stamp()}"
    with progress.shown():
        story = play_story(folder, progress.tell, ended, progress.note)
    if json:
        as_json(story.as_dict())
        return
    show_table([*story.strategies, *story.sharing])
    for text in (*story.notes, "", *story.sentences):
        out.print(text, markup=False, highlight=False)
    out.print(f"open: {story.page.absolute()}", markup=False, highlight=False)
