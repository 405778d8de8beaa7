"""Every file, command and option that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qtide.backends.clusters.kind import CLUSTERS
from qtide.strategies.strategy import strategy_names
from tests.docs.reader import ROOT
from tests.docs.test_reference import generated

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
HOMES = (ROOT, ROOT / "src" / "qtide", ROOT / "docs")
"""Where a path may begin: `runs/start.py` is a file of `src/qtide`."""
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINKED = re.compile(r"\]\((?!https?:|#)([^)#]+)")
A_FILE = re.compile(r"[a-z_.][\w.-]*(/[\w.-]+)+\.(py|md|toml|sh|html|css|yml|ipynb|col)")
A_FOLDER = re.compile(r"(src|tests|docs|benchmarks|examples|plugins)/([\w.-]+/)*")
A_COMMAND = re.compile(r"qtide ([a-z]+)")
AN_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def quoted(page: Path) -> list[str]:
    """The words in backquotes, without blocks: those are run."""
    return QUOTED.findall(FENCED.sub("", page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    names = [each for each in quoted(page) if A_FILE.fullmatch(each) or A_FOLDER.fullmatch(each)]
    gone = [each for each in names if not any((home / each).exists() for home in HOMES)]
    links = [each for each in LINKED.findall(page.read_text()) if not (page.parent / each).exists()]
    assert gone + links == []


@pytest.fixture(scope="module")
def reference() -> str:
    """The help of every command, with the options of every cluster and strategy."""
    made = generated()
    plugins = [("--cluster", each) for each in CLUSTERS.names()]
    plugins += [("--strategy", each) for each in strategy_names()]
    return "\n".join([made.commands(), *(made.help_text("run", *each) for each in plugins)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_and_options_that_a_page_names_exist(page: Path, reference: str) -> None:
    known = set(AN_OPTION.findall(reference))
    wrong = []
    for words in quoted(page):
        if called := A_COMMAND.match(words):
            if f"## qtide {called[1]}\n" not in reference:
                wrong.append(words)
            wrong += [each for each in AN_OPTION.findall(words) if each not in known]
    assert wrong == []
