"""A type checker knows the arguments and the results of a user's program and tasks."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from mypy import api

from qtide.backends.clusters.kind import CLUSTERS
from qtide.interfaces.python.keywords import PluginKeywords, RunKeywords
from qtide.runs.run_options import CORE
from qtide.strategies.strategy import STRATEGIES

ROOT = Path(__file__).parents[2]
MINE = """
from qtide import classical, compare, list_runs, program, quantum, resume, session, task, together

def half(x: float) -> float:
    return x / 2

async def part() -> int:
    return 3

@program
async def mine(x: float, times: int = 1) -> float:
    reveal_type(await task(half, x))
    reveal_type(await task(half, x).on(2))
    reveal_type(await classical(task(half, x), task(str, x)))
    reveal_type(await classical(*[task(half, x)]).within(3.0))
    reveal_type(await together(task(half, x), classical(task(str, x)), part(), quantum(3)))
    await classical(half)  # wrong
    await together(3)  # wrong
    await task(half, "x")  # wrong
    await task(half)  # wrong
    return await task(half, x)

reveal_type(mine.run(1.0, times=2).value)
reveal_type(mine.submit(1.0).wait().value)
reveal_type(mine.run(1.0, strategy="elastic", cluster="slurm").value)
reveal_type(mine.using(strategy="elastic").run(1.0, times=3).value)
mine.run("x")  # wrong
mine.run(1.0, time=2)  # wrong
mine.using(cluster="slurm").run(1.0, times="x")  # wrong
mine.run(1.0, strategy=3)  # wrong
mine.using(strategie="elastic")  # wrong
mine.using(nodes="x")  # wrong
mine.using({"of_another_package": 3}, favour=0.5).run(1.0)
session(strategie="elastic")  # wrong
reveal_type(compare(mine, 1.0, jobs=(1, 2)).table)
reveal_type(list_runs()[0].state)
resume("last").metrics.total + 1
with session(strategy="elastic") as s:
    reveal_type(s.submit(half, 1.0).result())
    reveal_type(list(s.map(half, [1.0])))
    s.submit(half, "x")  # wrong
"""


def test_a_users_program_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]  # of the check before the tests
    told, complaints, _ = api.run([*settings, *cache, str(file)])
    assert not complaints
    wrong = {n for n, line in enumerate(MINE.splitlines(), 1) if line.endswith("# wrong")}
    assert {int(n) for n in re.findall(r"mine\.py:(\d+): error", told)} == wrong
    revealed = re.findall(r'Revealed type is "(.*)"', told)
    assert [each.replace("builtins.", "") for each in revealed] == [
        "float",
        "list[float]",
        "tuple[float, str]",
        "list[float]",
        "tuple[float, list[str], int, Any]",
        *["float"] * 4,
        "list[dict[str, Any]]",
        "Literal['new'] | Literal['running'] | Literal['done'] | Literal['failed'] | "
        "Literal['cancelled'] | Literal['interrupted']",
        "float",
        "list[float]",
    ]


def test_a_type_checker_knows_the_options_of_all_plug_ins() -> None:
    registered = {
        each.name
        for plugins in (CLUSTERS, STRATEGIES)
        for name in plugins.names()
        for each in fields(plugins.load(name).Options)
        if plugins.load(name).__module__.startswith("qtide.")
    }
    assert registered <= PluginKeywords.__annotations__.keys()
    assert {*CORE, "name", "runs"} <= RunKeywords.__annotations__.keys()
