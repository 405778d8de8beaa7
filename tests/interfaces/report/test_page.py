import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from qtide.core.ledger import Interval
from qtide.interfaces.report.run_report import Group, Report, sentence, write_report
from tests.core.ledger_samples import STRATEGIES, groups, panel, two_jobs

VOID = {"meta", "link", "br", "img", "path", "use"}
NASTY = "<script>alert('x')</script>\"&"


class Page(HTMLParser):
    """Tags with their attributes, the text, and whether each tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def batched_pairs(paths: tuple[Path, ...]) -> list[tuple[Path, Path]]:
    """Each PNG with the SVG that shows the same."""
    return list(zip(paths[::2], paths[1::2], strict=True))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("out") / "new" / "folder"
    return write_report(folder, "Five strategies", groups(), ["Simulated.", NASTY])


@pytest.fixture(scope="module")
def page(report: Report) -> Page:
    return Page(report.page.read_text())


def test_pictures_lie_beside_the_page(report: Report) -> None:
    names = [path.name for path in report.pictures]
    assert names == [f"timeline-{jobs}-jobs.{kind}" for jobs in (1, 2) for kind in ("png", "svg")]
    for png, svg in batched_pairs(report.pictures):
        assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        words = "".join(ElementTree.parse(svg).getroot().itertext())
        assert all(strategy in words for strategy in STRATEGIES)
    assert {path.parent for path in report.pictures} == {report.page.parent}


def test_each_tag_is_closed(page: Page) -> None:
    assert page.open == []
    assert len(page.tags) > 100


def test_all_strategies_are_in_the_table_and_in_the_pictures(page: Page) -> None:
    for strategy in STRATEGIES:
        assert page.words.count(strategy) == 4


def test_it_needs_nothing_beside_it(report: Report) -> None:
    text = report.page.read_text()
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)", text)
    assert set(re.findall(r'(?:href|src)="([^#"]+)"', text)) == {
        path.name for path in report.pictures
    }


def test_ids_are_unique_and_labels_point_to_them(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    labels = {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a}
    assert len(ids) == len(set(ids))
    assert labels == {"figures", "timeline-1-jobs", "timeline-2-jobs", "notes"}
    assert labels <= set(ids)


def test_it_can_be_read_aloud(page: Page) -> None:
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    scopes = {attributes.get("scope") for tag, attributes in page.tags if tag == "th"}
    assert ("html", {"lang": "en"}) in page.tags
    assert len(pictures) == 2
    assert all("static takes" in (each["aria-label"] or "") for each in pictures)
    assert scopes == {"col", "row"}


def test_it_opens_with_the_headline(page: Page) -> None:
    assert sentence(groups()[1]) in page.words


def test_notes_are_escaped(report: Report, page: Page) -> None:
    assert NASTY in page.words
    assert NASTY not in report.page.read_text()


def test_labels_do_no_harm(tmp_path: Path) -> None:
    ledger = [Interval(NASTY, "run", "", 0, 2), Interval(NASTY, "held", f"node/{NASTY}", 0, 1)]
    hostile = Group(1, (panel(NASTY, ledger, (NASTY,)),))
    page = Page(write_report(tmp_path, NASTY, [hostile], []).page.read_text())
    assert "script" not in {tag for tag, _ in page.tags}
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
    assert NASTY in page.words


def test_broken_text_does_not_stop_the_page(tmp_path: Path) -> None:
    strange = Group(1, (panel("\x00\ud800", two_jobs()),))
    words = Page(write_report(tmp_path, "x", [strange], []).page.read_text()).words
    assert any(word.endswith("?") and len(word) == 2 for word in words)


def test_a_single_run_is_not_called_a_comparison(tmp_path: Path) -> None:
    one = Group(1, (panel("static", two_jobs()),))
    words = Page(write_report(tmp_path, "x", [one], []).page.read_text()).words
    assert "Figures" in words
    assert not [each for each in words if "omparison" in each or "best value" in each]


def test_several_runs_are_compared(page: Page) -> None:
    assert "Comparison" in page.words


def test_nothing_to_report(tmp_path: Path) -> None:
    report = write_report(tmp_path, "Empty", [Group(1, ())], [])
    assert report.pictures == ()
    assert "no job has run" in report.page.read_text()


def test_two_groups_of_as_many_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two have the same"):
        write_report(tmp_path, "x", groups()[:1] * 2, [])


def test_the_sentence_names_the_winner() -> None:
    assert sentence(groups()[1]) == (
        "With 2 jobs at once, elastic finished first, after 14.0 s (80% less than static); "
        "elastic held the fewest nodes over time, 23.0 node-seconds (80% less than static)."
    )


def test_the_sentence_names_no_winner_among_equals() -> None:
    assert sentence(groups()[0]) == (
        "With one job, all strategies took 10.0 s; all strategies held 14.0 node-seconds."
    )


def test_the_sentence_of_a_single_run_compares_nothing() -> None:
    assert sentence(Group(1, groups()[0].panels[:1])) == (
        "With one job, static took 10.0 s and held 14.0 node-seconds."
    )


def test_the_sentence_names_two_winners() -> None:
    slow = [Interval("a", "run", "", 0, 99), Interval("a", "held", "node/n", 0, 99)]
    three = [panel("x", two_jobs()), panel("y", two_jobs()), panel("z", slow)]
    assert sentence(Group(2, tuple(three))).startswith(
        "With 2 jobs at once, x and y finished first, after 14.0 s; x and y held the fewest"
    )
