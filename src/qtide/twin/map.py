"""The map of advice: which strategy, by the ratio of quantum to classical time and by the wait."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qtide.strategies.strategy import strategy_names


def draw_map(
    file: Path,
    ratios: Sequence[float],
    waits: Sequence[float],
    chart: Sequence[Sequence[str]],
    here: tuple[float, float],
) -> None:
    """Draw a map whose rows are the waits; `here` is the ratio and the wait of the job itself."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    names = [name for name in strategy_names() if any(name in row for row in chart)]
    colours = [COLOURS[strategy_names().index(name) % len(COLOURS)] for name in names]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    axis.pcolormesh(
        _places(ratios),
        _places(waits),
        [[names.index(name) for name in row] for row in chart],
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(names) - 0.5,
        edgecolors="white",
        linewidth=0.5,
    )
    axis.plot(_place(here[0], ratios), _place(here[1], waits), "k*", markersize=14)
    axis.set_xticks(range(len(ratios)), [f"{ratio:g}" for ratio in ratios])
    axis.set_yticks(range(len(waits)), [f"{wait:g}" for wait in waits])
    axis.set_xlabel("quantum time / classical time")
    axis.set_ylabel("wait of a request for nodes, s")
    axis.set_title("advised strategy; the star is this job")
    patches = [Patch(color=colour, label=name) for name, colour in zip(names, colours, strict=True)]
    figure.legend(handles=patches, loc="outside right upper")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")


def _places(values: Sequence[float]) -> list[float]:
    """The edges of as many cells, all of the same size."""
    return [number - 0.5 for number in range(len(values) + 1)]


def _place(value: float, values: Sequence[float]) -> float:
    """Where a value is among those of the cells, between two of them in proportion."""
    if value <= values[0]:
        return 0.0
    for number in range(1, len(values)):
        low, high = values[number - 1], values[number]
        if value <= high:
            return number - 1 + (value - low) / (high - low)
    return len(values) - 1.0
