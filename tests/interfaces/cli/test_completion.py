"""What a shell offers when the user presses Tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qtide.interfaces.cli.main import application
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec


def completed(line: str) -> list[str]:
    """The words that bash is offered at the end of a line."""
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = CliRunner().invoke(
        application(), [], prog_name="qtide", env=env | {"_QTIDE_COMPLETE": "complete_bash"}
    )
    return done.output.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("qtide re", ["resume", "report", "reproduce", "reap"]),
        ("qtide run --strategy s", ["split", "static"]),
        ("qtide compare --strategy e", ["elastic"]),
        ("qtide run --cluster ", ["local", "simulated", "slurm"]),
        ("qtide run syn", ["synthetic"]),
        ("qtide run --qpu n", ["neutral-atom", "noisy-star"]),
        ("qtide run --cluster slurm --acc", ["--account"]),
        ("qtide run --cluster cloud --ti", ["--time-scale"]),
        ("qtide submit --driver ", ["background", "slurm"]),
        ("qtide token re", ["revoke"]),
        ("qtide config dr", ["drain"]),
    ],
)
def test_names_complete(here: Path, line: str, words: list[str]) -> None:
    assert completed(line) == words


@pytest.mark.parametrize("command", ["resume", "show", "cancel", "report"])
def test_runs_complete(here: Path, command: str) -> None:
    for name in ("one", "other", "two"):
        RunFolder.create(here / "qtide-runs", name, Spec("synthetic"))
    assert sorted(completed(f"qtide {command} o")) == ["one", "other"]
    assert completed(f"qtide {command} l") == ["last"]


def test_runs_complete_in_the_folder_that_is_configured(here: Path) -> None:
    RunFolder.create(here / "kept", "one", Spec("synthetic"))
    (here / "qtide.toml").write_text('runs = "kept"\n')
    assert completed("qtide show o") == ["one"]


def test_a_wrong_file_does_not_break_completion(here: Path) -> None:
    (here / "qtide.toml").write_text("clustr = 1\n")
    assert completed("qtide run --strategy e") == ["elastic"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_gets_its_script(shell: str) -> None:
    env = {"_QTIDE_COMPLETE": f"source_{shell}"}
    script = CliRunner().invoke(application(), [], prog_name="qtide", env=env).output
    assert "_QTIDE_COMPLETE=complete_" in script
    assert script.split()[-1] == "qtide"


def test_bash_completes_for_real(here: Path, tmp_path: Path) -> None:
    """The script, in a bash: its function is called as bash would, with the words of a line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "qtide"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qtide "$@"\n')
    program.chmod(0o755)
    script = """
        source <(_QTIDE_COMPLETE=source_bash qtide)
        COMP_WORDS=(qtide run --strategy s) COMP_CWORD=3
        _qtide_completion qtide && echo "${COMPREPLY[@]}"
    """
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["split", "static"]
