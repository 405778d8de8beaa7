"""Commands: what a node does with one, and MPI programs over several nodes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide import CommandFailed, CommandResult, command
from qtide.core.job import CommandSettings
from qtide.programs.command import CommandAttempt, CommandTask
from tests.programs import commands_program


def run(task: CommandTask, folder: Path, **terms: str) -> CommandResult:
    """Run a command in this process, as an agent does."""
    task.use()
    attempt = CommandAttempt(0, "", "1/0", folder, CommandSettings(**terms))
    result = task.function(**task.keywords(attempt))
    assert isinstance(result, CommandResult)
    return result


def failure(task: CommandTask, folder: Path, **terms: str) -> str:
    with pytest.raises(CommandFailed) as caught:
        run(task, folder, **terms)
    return str(caught.value)


def script(folder: Path, text: str, mode: int = 0o755) -> Path:
    file = folder / "solver"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_command_reads_and_writes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program and its files are found from where the command is made."""
    monkeypatch.chdir(tmp_path)
    script(
        tmp_path, '#!/bin/sh\ncat "$1" - > out.txt; echo "$2 $SIZE"; echo slow >&2; touch a.log\n'
    )
    (tmp_path / "in put.txt").write_text("points\n")
    task = command(
        "./solver",
        "{input}",
        100,
        reads={"input": "in put.txt"},
        writes=["out.txt", "*.log"],
        stdin="more\n",
        env={"SIZE": 7},
    )
    assert (task.name, str(task)) == ("solver", "command(solver, …)")
    monkeypatch.chdir("/")
    done = run(task, tmp_path)
    assert (done.exit_code, done.output, done.errors) == (0, "100 7\n", "slow\n")
    assert sorted(done.files) == ["a.log", "out.txt"]
    assert done.files["out.txt"].read_text() == "points\nmore\n"
    assert done.files["out.txt"].is_relative_to(tmp_path / "commands")
    assert 0 < done.seconds < 60
    assert capfd.readouterr().out == "100 7\nslow\n"  # for the run's log


def test_output_goes_to_a_file_and_input_comes_from_one(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("3\n1\n")
    done = run(command("sort", stdin=tmp_path / "numbers", stdout="in/sorted[1]"), tmp_path)
    assert done.files["in/sorted[1]"].read_text() == "1\n3\n"


def test_a_command_in_a_folder_of_the_user(tmp_path: Path) -> None:
    """Its files are copied to the run, but not those that were there before."""
    place = tmp_path / "mine"
    place.mkdir()
    (place / "old").touch()
    os.utime(place / "old", (0, 0))
    task = command("sh", "-c", "pwd > new; pwd", folder=place, writes="new", stdout="told")
    done = run(task, tmp_path)
    assert [done.files[each].read_text() for each in ("new", "told")] == 2 * [f"{place}\n"]
    assert done.files["new"].is_relative_to(tmp_path / "commands")
    assert "has not written 'old'" in failure(command("true", folder=place, writes="old"), tmp_path)


def test_a_command_whose_output_cannot_be_kept_is_ended(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    task = command("sh", "-c", "echo $$ > pid; exec yes", folder=tmp_path, stdout="full")
    assert "cannot be kept on" in failure(task, tmp_path)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_nothing_is_left_of_a_command_that_writes_nothing(tmp_path: Path) -> None:
    assert run(command("true"), tmp_path).files == {}
    assert list((tmp_path / "commands").iterdir()) == []


def test_a_failed_command_shows_its_last_lines(tmp_path: Path) -> None:
    text = failure(command("sh", "-c", "seq 30 >&2; exit 3"), tmp_path)
    assert "the command sh ended with exit code 3 on" in text
    assert text.endswith("  29\n  30")
    assert "\n  15\n" not in text
    assert "killed by signal 9" in failure(command("sh", "-c", "kill -9 $$"), tmp_path)
    assert run(command("sh", "-c", "exit 3", success=[0, 3]), tmp_path).exit_code == 3


def test_what_cannot_be_started_is_said_in_one_sentence(tmp_path: Path) -> None:
    plain = script(tmp_path, "no program", 0o644)
    for task, told in [
        (command("no-such-solver"), "there is no program 'no-such-solver' on"),
        (command(tmp_path / "missing"), "build it, or give the right path"),
        (command(tmp_path), "is a folder, not a program"),
        (command(plain), f"is not executable: chmod +x {plain}"),
        (command("cat", reads=["/no/such/file"]), "reads /no/such/file, which does not exist"),
        (command("cat", stdin=Path("/no/such/file")), "cannot read /no/such/file"),
        (command("true", writes="out.h5"), "has not written 'out.h5'"),
        (command("true", folder="/no/such/folder"), "/no/such/folder does not exist on"),
        (command("true", launcher="no-mpiexec").on(1, ranks_per_node=2), "launcher no-mpiexec"),
    ]:
        text = failure(task, tmp_path)
        assert told in text
        assert "\n" not in text
    bare = script(tmp_path, "#!/no/such/interpreter")
    assert "the interpreter in its first line" in failure(command(bare), tmp_path)
    plain.write_bytes(b"\x7fELF nothing")
    plain.chmod(0o755)
    assert "neither a program for it nor a script that begins" in failure(command(plain), tmp_path)


def test_long_output_keeps_its_end_and_any_bytes_are_taken(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    many = 40 * 2**20
    text = f"head -c {many} /dev/zero | tr '\\0' x; printf '\\377\\376 end'"
    done = run(command("sh", "-c", text), tmp_path)
    assert done.output.endswith("xx\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} end")
    assert len(done.output) == 2**20
    assert done.left_out == many + 6 - 2**20
    assert "bytes more were left out" in capfd.readouterr().out[-100:]


def test_what_a_command_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    done = run(command("sh", "-c", "sleep 60 & echo $!"), tmp_path)
    assert done.seconds < 30
    os.kill(int(done.output), signal.SIGKILL)


def test_modules_and_wrapper_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command's own come before those of the run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bash_profile").write_text(
        'module() { [ "$1 $2" = "load gcc/13" ] && export CC="$2 $3" || { echo no; false; }; }\n'
    )
    task = command("sh", "-c", "echo $CC $X")
    assert run(task, tmp_path, modules="gcc/13 mpi", wrapper="env X=1").output == "gcc/13 mpi 1\n"
    own = command("sh", "-c", "echo $CC $X", modules=["gcc/13", "cuda"], wrapper=["env", "X=a b"])
    assert run(own, tmp_path, modules="gcc/14", wrapper="env X=1").output == "gcc/13 cuda a b\n"
    assert "the modules gcc/14 cannot be loaded on" in failure(task, tmp_path, modules="gcc/14")


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=4))
@settings(max_examples=30)
def test_words_arrive_as_they_are(words: list[str]) -> None:
    """Only a name that the command reads is replaced; other braces are the program's own."""
    with TemporaryDirectory() as folder:
        done = run(command("printf", "%s\\0", *words, "{x}"), Path(folder))
    assert done.output == "\0".join([*words, "{x}", ""])


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: command(""), "name or path of a program"),
        (
            lambda: command("a", None),  # type: ignore[arg-type]  # wrong on purpose
            "text, a number or a path",
        ),
        (lambda: command("a", "b\0c"), "cannot contain the null byte"),
        (lambda: command("a\0"), "cannot contain the null byte"),
        (lambda: command("a", env={"b=c": "d"}), "names of variables, not 'b=c'"),
        (lambda: command("a", writes="../b"), "within the working folder"),
        (lambda: command("a", stdout="/b"), "within the working folder"),
        (lambda: command("a", reads=["b/x"], stdout="x"), "would overwrite 'x'"),
        (lambda: command("a", reads=["b/x", "c/x"]), "two files of the same name"),
        (lambda: command("a").on(0), "at least one node"),
        (lambda: command("a").on(1, ranks_per_node=0), "at least one rank per node"),
    ],
)
def test_wrong_commands_are_refused(made: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        made()


def test_an_mpi_program_in_virtual_time(tmp_path: Path) -> None:
    """It really runs, on this machine, and its nodes are busy together."""
    run = commands_program.chain.run(cluster="simulated:3", runs=tmp_path)
    assert run.value[-1] == "3 of 3\n"


def test_open_mpi_is_recognised_and_gets_its_own_options(tmp_path: Path) -> None:
    """A launcher may start only with what its environment module has set."""
    said = '[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" || printf "%s " "$@"'
    launcher = str(script(tmp_path, f'#!/bin/sh\n[ "$LIBRARIES" ] || exit 127\n{said}\n'))
    task = command("true", launcher=launcher, env={"LIBRARIES": "/opt"})
    made = run(task.on(1, ranks_per_node=2), tmp_path)
    assert made.output.split()[:-1] == ["-n", "2", "--bind-to", "none", "--host", "localhost:2"]


@pytest.mark.parametrize("strategy", ["static", "elastic"])
def test_a_lost_node_starts_an_mpi_program_again(tmp_path: Path, strategy: str) -> None:
    marks, cluster = tmp_path / "marks", "local:3"
    run = commands_program.chain.run(str(marks), cluster=cluster, strategy=strategy, runs=tmp_path)
    assert run.value == ["2 lines\n"] * 3 + ["3 of 3\n"]
    assert len(marks.read_text().splitlines()) == 2


def test_a_time_limit_ends_an_mpi_program_on_all_nodes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = commands_program.limited.run(str(mark), 4.0, cluster="local:2", runs=tmp_path)
    assert run.value == "in time\n"
    assert living(mark) == []


def test_a_killed_driver_leaves_nothing_of_an_mpi_program(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    words = [sys.executable, "-m", "qtide", "run", f"{commands_program.__file__}:endless"]
    driver = subprocess.Popen([*words, str(mark), "--cluster", "local:2"], cwd=tmp_path)
    wait_until(mark.exists)
    assert len(living(mark)) >= 4
    driver.kill()
    driver.wait()
    wait_until(lambda: not living(mark))


def living(mark: Path) -> list[int]:
    """The living processes with a word in their command lines."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                if os.fsencode(mark) in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def wait_until(condition: Any, limit: float = 60.0) -> None:
    last = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < last, "waited too long"
        time.sleep(0.05)
