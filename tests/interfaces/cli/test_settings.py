"""Options from files, and `qtide config`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from qtide.core.errors import UsageError
from qtide.runs.run_options import RunOptions
from tests.interfaces.cli.inside import called, printed, refused


def user_file(folder: Path, text: str) -> None:
    place = folder.parent / "config" / "qtide"
    place.mkdir(parents=True)
    (place / "qtide.toml").write_text(text)


def holds(*words: str) -> dict[str, tuple[Any, str]]:
    rows = json.loads(printed(*words, "--json"))["options"]
    return {row["option"]: (row["value"], row["source"]) for row in rows}


def test_the_present_folders_file_takes_precedence_entry_by_entry(here: Path) -> None:
    user_file(
        here, 'cluster = "simulated"\nfavour = "time"\n[run]\nstrategy = "static"\nseed = 4\n'
    )
    (here / "qtide.toml").write_text('strategy = "elastic"\n[compare]\njobs = [1, 2]\n')
    found = holds("config", "run")
    assert found["cluster"] == ("simulated", "user file")
    assert found["strategy"] == ("elastic", "folder file")
    assert found["seed"] == (4, "user file")
    assert found["vqpus"] == (1, "default")
    printed("run", "synthetic", "--iterations", 1, "--name", "it", "--seed", 5)
    spec = json.loads((here / "qtide-runs" / "it" / "run.json").read_text())
    kept = (spec["cluster"], spec["strategy"], spec["seed"], spec["options"]["favour"])
    assert kept == ("simulated", "elastic", 5, "time")


def test_command_lines_of_the_present_folder_run_only_once_they_are_allowed(here: Path) -> None:
    """The folder may come from elsewhere; the user's own file needs no word."""
    user_file(here, 'modules = "gcc/13"\n')
    mark = here / "mark"
    attack = f'["sh", "-c", "touch {mark}"]'
    (here / "qtide.toml").write_text(f'wrapper = "nice"\n[run]\nsalloc = {attack}\n')
    words = ("run", "synthetic", "--iterations", "1", "--name", "it", "--cluster")
    assert "qtide.toml sets wrapper = 'nice', which runs as a command" in refused(*words, "local")
    with pytest.raises(UsageError, match="qtide config --allow"):
        RunOptions("run", {}).spec("synthetic")
    assert "there is no run" in printed("list"), "what runs no command is not refused"
    assert "allowed: run.salloc" in printed("config", "--allow")
    printed(*words, "simulated")
    spec = json.loads((here / "qtide-runs" / "it" / "run.json").read_text())
    assert (spec["wrapper"], spec["modules"]) == ("nice", "gcc/13")
    (here / "qtide.toml").write_text(f'wrapper = "nice"\nsalloc = {attack}\n')
    assert "config --allow" in refused(*words, "slurm"), "it has changed since it was allowed"
    assert "nothing to allow" in refused("--config", "qtide.toml", "config", "--allow")
    (here / "qtide.toml").write_text("cc = 'touch mark'\n")
    assert "sets cc" in refused("mpi", "build", "x.c", "--to", "x")
    assert not mark.exists()


@pytest.mark.parametrize("reader", ["list", "run", "devices"])
def test_a_file_of_others_in_the_present_folder_is_not_obeyed(here: Path, reader: str) -> None:
    (here / "qtide.toml").write_text("seed = 1\n")
    (here / "qtide.toml").chmod(0o666)
    assert "can be written by everybody" in refused(reader)
    if os.geteuid() == 0:
        (here / "qtide.toml").chmod(0o644)
        os.chown(here / "qtide.toml", 12345, 12345)
        assert "belongs to another user" in refused(reader)


def test_a_home_that_cannot_be_entered_has_no_settings(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su` and `setpriv`, which leave another user's home in HOME."""
    exists = Path.exists

    def denied(path: Path) -> bool:
        if path.parent.name == "qtide":
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", denied)
    (here / "qtide.toml").write_text('strategy = "elastic"\n')
    assert holds("config", "run")["strategy"] == ("elastic", "folder file")


def test_a_named_file_replaces_both(here: Path) -> None:
    user_file(here, "seed = 1\n")
    (here / "qtide.toml").write_text("vqpus = 2\n")
    (here / "other.toml").write_text("seed = 3\n")
    found = holds("--config", "other.toml", "config", "run")
    assert found["seed"] == (3, "--config")
    assert found["vqpus"] == (1, "default")


def test_the_environment_overrides_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "qtide.toml").write_text('runs = "mine"\n')
    assert holds("config", "list")["runs"] == ("mine", "folder file")
    monkeypatch.setenv("QTIDE_RUNS", "elsewhere")
    assert holds("config", "list")["runs"] == ("elsewhere", "environment (QTIDE_RUNS)")
    assert "there is no run in elsewhere yet" in printed("list")


def test_a_subcommand_has_a_table_of_its_own(here: Path) -> None:
    (here / "qtide.toml").write_text("[token.new]\ndays = 3\n")
    assert holds("config", "token")["days"] == (3, "folder file")
    assert "[default: 3" in printed("token", "new", "--help")


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("clustr = 'x'", ("list",), "no command has an option 'clustr'; did you mean 'cluster'?"),
        ("[rum]\nseed = 1", ("list",), "no command for the table [rum]; did you mean 'run'?"),
        ("[run]\nnodez = 1", ("run", "synthetic"), "[run] has no option 'nodez'; did you mean"),
        ("[list]\naccount = 'x'", ("list",), "[list] has no option 'account'; remove it"),
        ("[run]\nnodez = 1", ("config",), "[run] has no option 'nodez'; did you mean 'nodes'?"),
        ("[token.new]\nday = 1", ("token", "list"), "[token.new] has no option 'day'; did you"),
        (
            "[token.nwe]\nday = 1",
            ("token", "list"),
            "[token] has no table 'nwe'; did you mean 'new'",
        ),
        ("[run.static]\nseed = 1", ("run", "synthetic"), "[run] has no table 'static'; remove it"),
        ("seed = ", ("list",), "the configuration qtide.toml cannot be read"),
        ("[run]\nnodes = 'x'", ("run", "synthetic"), "(in qtide.toml)"),
        ("[run]\ncores = 'x'", ("run", "synthetic"), "the argument cores cannot be 'x'"),
        ("cluster = 'cloud'", ("run", "synthetic"), "there is no cluster 'cloud'"),
    ],
)
def test_unknown_names_are_refused(
    here: Path, text: str, words: tuple[str, ...], sentence: str
) -> None:
    (here / "qtide.toml").write_text(text + "\n")
    said = refused(*words)
    assert sentence in " ".join(said.split())
    assert "qtide.toml" in said or "cluster" in said or "cores" in said


def test_options_of_other_clusters_may_be_in_a_file(here: Path) -> None:
    (here / "qtide.toml").write_text('account = "me"\n[run]\nqos = "low"\ntime_weight = 1\n')
    assert called("list").exit_code == 0
    printed("run", "synthetic", "--iterations", 1, "--cluster", "simulated", "--strategy", "static")
    rows = json.loads(printed("config", "run", "--json"))["options"]
    (account,) = [row for row in rows if row["option"] == "account"]
    assert (account["value"], account["only with"]) == ("me", "--cluster slurm")


def test_the_example_of_the_documentation_works(here: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "programs.md"
    example = page.read_text().partition("```toml\n")[2].partition("```")[0]
    (here / "qtide.toml").write_text(example)
    assert holds("config", "compare")["jobs"] == ([1, 2], "folder file")
    assert "folder file: " in printed("config")
