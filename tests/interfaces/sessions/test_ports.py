"""The ports of plain scripts: the same results, and a handful of changed lines."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
MOST = 8
"""Changed lines of a port."""


def main_of(name: str) -> Any:
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["vqe", "qubo"])
def test_a_port_changes_a_handful_of_lines(name: str) -> None:
    kinds = ("plain", "with_qtide")
    plain, port = ((EXAMPLES / f"{name}_{kind}.py").read_text().splitlines() for kind in kinds)
    changed = [line for line in difflib.ndiff(plain, port) if line[:2] in ("- ", "+ ")]
    added = [line for line in changed if line.startswith("+ ") and line.strip("+ ")]
    removed = [line for line in changed if line.startswith("- ") and line.strip("- ")]
    assert max(len(added), len(removed)) <= MOST


@pytest.mark.parametrize("name", ["vqe", "qubo"])
def test_a_port_finds_the_same(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In virtual time; the plain script calls its functions here, not in processes."""
    (here / "qtide.toml").write_text('cluster = "simulated:2"\n')
    plain, port = main_of(f"{name}_plain"), main_of(f"{name}_with_qtide")
    for module in (plain, port):
        monkeypatch.setattr(module, "ROUNDS", 2, raising=False)
    monkeypatch.setattr(plain, "ProcessPoolExecutor", Here)
    assert plain.main() == port.main()
    told = capsys.readouterr().out.splitlines()
    assert told[: len(told) // 2] == told[len(told) // 2 :]


class Here:
    """Stands for a pool: `map` as Python has it."""

    def __init__(self, *_: object) -> None:
        self.map = map

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass
