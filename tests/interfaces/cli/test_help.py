"""Help as a user sees it, at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.backends.clusters.kind import CLUSTERS
from qtide.interfaces.cli.main import COMMANDS, leaves, load
from qtide.runs.settings import Settings
from qtide.strategies.strategy import STRATEGIES
from tests.interfaces.cli.inside import called, printed


def every_command() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        for path, _ in leaves(load(name, [], Settings()), name):
            yield path


def test_all_commands_are_under_their_headings() -> None:
    text = printed("--help")
    blocks = {block.partition(":\n")[0]: block for block in text.split("\n\n")}
    width = max(map(len, COMMANDS))
    for name, entry in COMMANDS.items():
        assert f"\n  {name:<{width}}  {entry.summary}\n" in blocks[entry.heading] + "\n"


@pytest.mark.parametrize("path", [(), ("box",), ("token",), *every_command()], ids=" ".join)
def test_nothing_is_cut_off_and_nothing_is_too_wide(path: tuple[str, ...]) -> None:
    text = printed(*path, "--help")
    assert "…" not in text
    assert "..." not in text.replace("[ARGS]...", "").replace("COMMAND...", "").replace(
        "[COMMAND]...", ""
    )
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_every_command_helps_with_an_example_on_one_line(path: tuple[str, ...]) -> None:
    command = load(path[0], [], Settings())
    for name, each in leaves(command, path[0]):
        if name == path:
            example = next(line for line in each.help.splitlines() if line.startswith("Example: "))
            assert f"  {example}\n" in printed(*path, "--help")
            assert f"qtide {' '.join(path)}" in example


@pytest.mark.parametrize("path", [each for each in every_command() if each != ("serve",)])
def test_every_command_has_json(path: tuple[str, ...]) -> None:
    assert "--json" in printed(*path, "--help")


def test_the_help_of_run_is_one_screen() -> None:
    text = printed("run", "--help")
    assert len(text.splitlines()) <= 51
    assert "Options of --cluster local" in text
    assert "Options of --strategy elastic" in text
    assert "--account" not in text
    assert "qtide run --cluster slurm --help" in text


def test_names_in_help_are_those_of_the_registries() -> None:
    text = " ".join(printed("run", "--help").split())
    assert ", ".join(CLUSTERS.names()) in text
    assert ", ".join(STRATEGIES.names()) in text


@pytest.mark.parametrize("words", [("--cluster", "slurm:compute"), ("--cluster=slurm",)])
def test_options_of_what_was_chosen_are_shown(words: tuple[str, ...]) -> None:
    text = printed("run", *words, "--strategy", "malleable", "--help")
    assert "Options of --cluster slurm" in text
    assert "--qpu-partition" in text
    assert "--expand-timeout" in text
    assert "--memory" not in text and "--favour" not in text


def test_a_configured_cluster_is_the_one_that_is_shown(here: Path) -> None:
    (here / "qtide.toml").write_text('cluster = "slurm"\n')
    text = printed("run", "--help")
    assert "--account" in text and "[default: slurm]" in text


def test_compare_shows_the_options_of_all_strategies_it_compares() -> None:
    text = printed("compare", "--help")
    assert "--favour" in text and "--expand-timeout" in text
    assert "--favour" not in printed("compare", "--strategy", "static", "--help")


def test_the_help_of_a_program_follows_qtides(here: Path) -> None:
    (here / "helped.py").write_text(
        "from qtide import program\n"
        "@program\n"
        "async def helped(points: str, *, most: int = 3, seed: int = 0):\n"
        '    """Look at points.\n\n    And more of it."""\n'
    )
    text = printed("run", "helped.py", "--help")
    own = text[text.index("Arguments of helped:") :]
    assert "Look at points." in own and "And more" not in own
    assert [line.split() for line in own.splitlines()[2:5]] == [
        ["POINTS", "str", "[required]"],
        ["--most", "int", "[default:", "3]"],
        ["--seed", "int", "[default:", "the", "run's", "own]"],
    ]


def test_an_unknown_command_gets_a_suggestion() -> None:
    done = called("rnu")
    assert done.exit_code == 2
    assert "Did you mean 'run'?" in done.output


def test_each_group_has_its_own_commands() -> None:
    def listed(group: str) -> list[str]:
        lines = printed(group, "--help").partition("Commands:\n")[2].splitlines()
        return [line.split()[0] for line in lines if line[2:3].strip()]

    assert listed("engine") == ["install"]
    assert listed("export") == ["ro-crate", "trace", "cwl"]


def test_summaries_end_with_one_full_stop() -> None:
    for group in ("plan", "token", "box", "export", "twin"):
        text = printed(group, "--help")
        assert "?." not in text and ".." not in text.replace("[ARGS]...", "").replace(
            "COMMAND...", ""
        ).replace("[COMMAND]...", "")


def test_a_comparison_has_a_virtual_qpu_for_each_job() -> None:
    assert "[default: (as many as jobs)]" in " ".join(printed("compare", "--help").split())
    assert "Virtual QPUs that share the device. [default: 1]" in " ".join(
        printed("run", "--help").split()
    )
