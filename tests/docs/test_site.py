"""The site builds without a warning, and its pages fetch nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import qtide
from qtide.interfaces.cli.main import COMMANDS
from tests.docs.reader import ROOT

LIMIT = 120.0
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|"""
    r"""<link\b[^>]*\bhref=["']?(?:https?:)?//|@import|url\(["']?(?:https?:)?//"""
)
"""What a browser would request from another host; links to click are no requests."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=LIMIT,
    )
    return folder


def test_nothing_is_fetched_from_other_hosts(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    found = {page.name: hit[0] for page in pages if (hit := FETCHED.search(page.read_text()))}
    assert len(pages) > 20 and not found


def test_every_command_and_public_name_has_an_entry(site: Path) -> None:
    commands, names = ((site / f"{page}.html").read_text() for page in ("commands", "python"))
    assert [each for each in COMMANDS if f'id="qtide-{each}"' not in commands] == []
    assert [each for each in qtide.__all__ if f"qtide.{each}" not in names] == []
    assert "qtide token new alice" in commands


def test_the_navigation_names_every_page() -> None:
    named = (ROOT / "mkdocs.yml").read_text()
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f": {page}\n" not in named] == []


def test_every_page_can_be_searched(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    pages = [page.with_suffix(".html").name for page in (ROOT / "docs").glob("*.md")]
    assert (site / "search" / "search_index.js").is_file(), "from the file system, too"
    assert pages and [page for page in pages if page not in index] == []
