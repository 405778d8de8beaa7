"""The fenced blocks of a page, and the remarks above them that say how they are tested.

A remark is an HTML comment on a line of its own, directly above the block:
`not run: REASON`, `slurm`, `file: NAME` (written to a file, not run).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"( *)```(\w*)\s*")
REMARK = re.compile(r"\s*<!-- (not run|file): (.+) -->\s*|\s*<!-- (slurm) -->\s*")
RUN = ("sh", "python")
"""Languages of blocks that are run."""
OUTPUT = ("", "text")
"""Languages of a block that shows what the one directly above it prints."""
ANYTHING = "…"
"""Stands in shown output for any text of a line."""


@dataclass
class Block:
    """A fenced block; `line` is that of its fence."""

    page: Path
    line: int
    language: str
    text: str
    remarks: list[tuple[str, str]] = field(default_factory=list)
    shown: Block | None = None

    @property
    def place(self) -> str:
        """Where it is, for errors."""
        return f"{self.page.name}:{self.line}"

    def remark(self, kind: str) -> str | None:
        """What a remark of this kind says; nothing if there is none."""
        return next((text for name, text in self.remarks if name == kind), None)

    @property
    def is_run(self) -> bool:
        """Whether the test runs it."""
        written = self.remark("not run") is not None or self.remark("file") is not None
        return self.language in RUN and not written


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order; shown output belongs to the block that prints it."""
    found: list[Block] = []
    end = 0
    for block, last in _fenced(page):
        before = page.read_text().splitlines()[end : block.line - 1]
        end = last
        if found and found[-1].is_run and block.language in OUTPUT and not any(before):
            found[-1].shown = block
        else:
            found.append(block)
    return found


def missing(shown: str, printed: str) -> str | None:
    """The first shown line that is not in the output, after those above it; spaces count once."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for line in shown.splitlines():
        wanted = _pattern(line)
        if not any(wanted.fullmatch(each) for each in lines):
            return line
    return None


def _pattern(line: str) -> re.Pattern[str]:
    parts = " ".join(line.split()).split(ANYTHING)
    return re.compile(".*".join(map(re.escape, parts)))


def _fenced(page: Path) -> Iterator[tuple[Block, int]]:
    """Each block, and the number of its last line."""
    lines = enumerate(page.read_text().splitlines(), 1)
    remarks: list[tuple[str, str]] = []
    for number, line in lines:
        if remark := REMARK.fullmatch(line):
            remarks.append((remark[1] or remark[3], remark[2] or ""))
        elif fence := FENCE.fullmatch(line):
            inside: list[str] = []
            last = number
            for last, text in lines:  # noqa: B007 - where the block ends
                if text.rstrip() == f"{fence[1]}```":
                    break
                inside.append(text.removeprefix(fence[1]))
            yield Block(page, number, fence[2], "\n".join(inside) + "\n", remarks), last
            remarks = []
        else:
            remarks = []
