"""Every command and every line of Python in the documentation is run, page by page."""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.backends.slurm.fixtures import install, remove
from tests.docs.blocks import OUTPUT, RUN, Block, read_blocks
from tests.docs.reader import ROOT, Reader

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def json_lines(text: str) -> None:
    """One document per line, or a single one on several."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


PARSERS: dict[str, Callable[[str], object]] = {"toml": tomllib.loads, "json": json_lines}
DATA = ("text", "mermaid", *PARSERS)


def is_for_slurm(page: Path) -> bool:
    return any(block.remark("slurm") is not None for block in read_blocks(page))


def pages(*, slurm: bool) -> list[Path]:
    """The pages with something to run, those that need Slurm or the others."""
    return [
        page
        for page in PAGES
        if any(block.is_run for block in read_blocks(page)) and is_for_slurm(page) == slurm
    ]


@pytest.fixture
def reader() -> Iterator[Reader]:
    """A reader whose paths are short enough for sockets; boxes that are left are taken down."""
    if shutil.which("curl") is None:
        install("the documentation calls curl, which is missing", ["curl"])
    folder = Path(tempfile.mkdtemp(prefix="qtide-docs-"))
    made = Reader(folder)
    yield made
    made.end()
    for box in (folder / ".local" / "state" / "qtide" / "box").glob("*"):
        remove(box)
    shutil.rmtree(folder, ignore_errors=True)


def follow(page: Path, reader: Reader) -> None:
    for block in read_blocks(page):
        if block.is_run or block.remark("file"):
            wrong = reader.follow(block)
            if wrong:
                pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize("page", pages(slurm=False), ids=lambda page: page.name)
def test_a_page_does_what_it_says(page: Path, reader: Reader) -> None:
    follow(page, reader)


@pytest.mark.parametrize("page", pages(slurm=True), ids=lambda page: page.name)
def test_a_page_with_slurm_does_what_it_says(page: Path, packages: None, reader: Reader) -> None:
    follow(page, reader)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_can_be_tested(page: Path) -> None:
    complaints = [line for block in read_blocks(page) for line in complaint(block)]
    assert not complaints, "\n".join(complaints)


def complaint(block: Block) -> Iterator[str]:
    """What keeps a block from being tested."""
    if block.remark("not run") is not None:
        return
    if block.language not in (*RUN, *DATA):
        shows = " if it is output, nothing may stand between it and what prints it;"
        yield (
            f"{block.place}: a block in the language {block.language!r};"
            f"{shows if block.language in OUTPUT else ''} "
            f"write {', '.join((*RUN, *DATA))}, or above it <!-- not run: REASON -->"
        )
    try:
        PARSERS.get(block.language, str)(block.text)
    except ValueError as error:
        yield f"{block.place}: this is not {block.language}: {error}"
