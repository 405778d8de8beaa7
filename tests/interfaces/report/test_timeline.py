from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure

from qtide.core.ledger import Interval
from qtide.interfaces.report.timeline import draw, lanes, save
from tests.core.ledger_samples import panel, two_jobs


def texts(figure: Figure) -> list[str]:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return found + [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def many(nodes: int, each: int) -> list[Interval]:
    """Thousands of short tasks."""
    return [
        Interval(f"job {i % 3}", "busy", f"node/{node}", 10 * i, 10 * i + 5, "task")
        for node in range(nodes)
        for i in range(each)
    ]


def test_one_panel_a_strategy_on_one_axis() -> None:
    slow = [Interval("a", "run", "", 100, 140)]
    figure = draw([panel("static", two_jobs()), panel("elastic", slow)])
    assert len(figure.axes) == 2
    assert [axes.get_xlim()[1] for axes in figure.axes] == pytest.approx([40 * 1.004] * 2)
    assert {"static", "elastic"} <= set(texts(figure))


def test_the_title_tells_the_key_figures() -> None:
    (line,) = [text for text in texts(draw([panel("static", two_jobs())])) if "total" in text]
    assert "total 14.0 s" in line
    assert "23.0 node-s held, 6.000 busy" in line
    assert "QPU 50.0% busy" in line


def test_the_legend_names_jobs_and_kinds() -> None:
    assert {"a", "b", "held", "busy", "waiting"} <= set(texts(draw([panel("x", two_jobs())])))


def test_jobs_of_different_names_are_numbered() -> None:
    other = [Interval("c", "run", "", 0, 1)]
    figure = draw([panel("x", two_jobs(), ("a",)), panel("y", other, ("c",))])
    assert {"job 1", "b"} <= set(texts(figure))


def test_many_jobs_do_not_fill_the_legend() -> None:
    jobs = [Interval(f"j{i}", "run", "", 0, 1) for i in range(30)]
    assert "and 18 more" in texts(draw([panel("x", jobs, ())]))


@pytest.mark.parametrize("label", ["$x^$", "_hidden", "<b>&\"'", "\x00\x1b", "é" * 80])
def test_any_label_can_be_drawn(label: str, tmp_path: Path) -> None:
    ledger = [Interval(label, "run", "", 0, 2), Interval(label, "held", f"node/{label}", 0, 1)]
    save(draw([panel(label, ledger, (label,))]), tmp_path / "t.svg")
    shown = "".join(ElementTree.parse(tmp_path / "t.svg").getroot().itertext())
    first = label[0] if label.isprintable() else "\N{REPLACEMENT CHARACTER}"
    assert shown.count(first) >= 3


def test_an_empty_panel_can_be_drawn() -> None:
    assert "static" in texts(draw([panel("static", [], ())]))


def test_no_panels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one panel"):
        draw([])


def test_files_are_made_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for kind in ("png", "svg"):
            save(draw([panel("static", two_jobs())]), tmp_path / f"{name}.{kind}")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert "<text" in (tmp_path / "one.svg").read_text()
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()


def test_global_settings_stay_as_they_are(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(draw([panel("static", two_jobs())]), tmp_path / "t.svg")
    assert dict(matplotlib.rcParams) == before


def test_many_bars_are_few_patches_and_a_small_file(tmp_path: Path) -> None:
    """What makes drawing slow is the number of patches: one per job, and one for the empty rows."""
    figure = draw([panel("static", many(64, 400), ())])
    (axes,) = figure.axes
    assert len(axes.patches) == 3 + 1
    assert all(patch.get_rasterized() for patch in axes.patches[1:])
    save(figure, tmp_path / "t.svg")
    assert (tmp_path / "t.svg").stat().st_size < 2_000_000


def test_a_moment_on_the_device_is_wide_enough_to_be_seen() -> None:
    ledger = [Interval("a", "run", "", 0, 10_000), Interval("a", "busy", "qpu/q", 5000, 5000.01)]
    (axes,) = draw([panel("static", ledger, ("a",))]).axes
    widths = [patch.get_path().get_extents().width for patch in axes.patches]
    assert sorted(widths) == [pytest.approx(10_000 / 800), 10_000]


def test_the_legend_names_starting_where_there_is_some() -> None:
    assert "starting" not in texts(draw([panel("x", two_jobs())]))
    figure = draw([panel("x", [*two_jobs(), Interval("a", "starting", "node/n1", 0, 1)])])
    assert "starting" in texts(figure)
    assert any("1.000 starting, 5.000 busy" in text for text in texts(figure))


def test_tasks_that_share_a_node_are_drawn_beside_each_other() -> None:
    spans = [
        Interval("a", "held", "node/n1", 0.0, 10.0, part=(4, 0)),
        Interval("a", "busy", "node/n1", 0.0, 10.0, part=(1, 0)),
        Interval("a", "busy", "node/n1", 0.0, 4.0, part=(2, 0)),
        Interval("a", "held", "node/n2", 0.0, 10.0, part=(4, 0)),
        Interval("a", "busy", "node/n2", 0.0, 10.0),
    ]
    first, second = lanes(spans)
    strips = {(bars.top, bars.bottom): bars.cover for bars in first.bars if bars.what == "busy"}
    assert strips == {
        (0.0, 0.25): [(0.0, 10.0)],
        (0.25, 0.5): [(0.0, 4.0)],
        (0.5, 0.75): [(0.0, 4.0)],
    }
    (whole,) = [bars for bars in second.bars if bars.what == "busy"]
    assert (whole.top, whole.bottom, whole.cover) == (0.0, 1.0, [(0.0, 10.0)])
