"""Newcomers start the program that started the root, however that was started."""

import subprocess
import sys
from pathlib import Path

from qtide.mpi.newcomer import BOOT, command

PYTHON, HERE = sys.executable, Path.cwd()


def test_a_script_is_started_with_its_options_and_arguments() -> None:
    original = ["python", "-W", "error", "prog.py", "3", "-x"]
    found = command(original, ["prog.py", "3", "-x"], HERE)
    assert found == [PYTHON, "-W", "error", "-c", BOOT, "prog.py", "3", "-x"]


def test_a_program_is_started_again_where_it_was_started(tmp_path: Path) -> None:
    found = command(["python", "prog.py"], ["prog.py"], tmp_path)
    assert found == ["env", f"--chdir={tmp_path}", PYTHON, "-c", BOOT, "prog.py"]


def test_a_module_and_a_line_of_code_are_started_as_before() -> None:
    module = ["python", "-m", "package.prog", "3"]
    assert command(module, ["/somewhere/package/prog.py", "3"], HERE) == [PYTHON, *module[1:]]
    line = ["python", "-c", "pass", "3"]
    assert command(line, ["-c", "3"], HERE) == [PYTHON, *line[1:]]


def test_a_script_finds_what_it_would_find_if_python_had_started_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("HERE = True\n")
    program = tmp_path / "prog.py"
    program.write_text(
        "import pickle, sys, beside\n"
        "class Own: pass\n"
        "pickle.loads(pickle.dumps(Own()))\n"
        "print(__name__, __file__, sys.argv[1:], sys.path[0], len([]))\n"
    )
    words = command(["python", str(program), "3"], [str(program), "3"], HERE)
    ways = ([PYTHON, str(program), "3"], words)
    said = [subprocess.run(each, capture_output=True, text=True, check=True) for each in ways]
    assert said[0].stdout == said[1].stdout
    assert said[0].stdout == f"__main__ {program} ['3'] {tmp_path} 0\n"
