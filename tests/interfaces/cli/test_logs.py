"""What tasks print: never among JSON, always in the log."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.cli.inside import printed
from tests.interfaces.cli.test_commands import qtide

LOUD = """
import os, sys
from qtide import classical, pretend, program, task
print("the file is loaded")
def say(word):
    print(word)
    sys.stderr.write(f"{word} to stderr\\n")
    sys.stdout.buffer.write(b"bytes\\n")
    os.system("echo past Python")
    pretend(2)
    return word
@program
async def loud():
    print("the program speaks")
    await classical(task(say, "one"), task(say, "two"))
    return await task(say, "three")
"""
SPOKEN = ["three", "three to stderr", "bytes"]


@pytest.fixture
def loud(tmp_path: Path) -> Path:
    (tmp_path / "loud.py").write_text(LOUD)
    return tmp_path


def logs(folder: Path, *words: str) -> list[dict[str, Any]]:
    done = qtide(folder, "logs", "last", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("cluster", [("--cluster", "simulated"), ("--time-scale", "0.01")])
def test_prints_never_break_json_and_are_in_the_log(loud: Path, cluster: tuple[str, ...]) -> None:
    ran = qtide(loud, "run", "loud.py", *cluster, "--json")
    assert json.loads(ran.stdout)["value"] == "three"
    assert "the file is loaded\nthe program speaks" in ran.stderr
    third = logs(loud, "--task", "2")
    said = [each["text"] for each in third if each["text"] != "past Python"]
    assert said == SPOKEN
    assert {(each["task"], each["function"]) for each in third} == {("2/0", "say")}
    (node,) = {each["node"] for each in third}
    assert "no line of node n99 is in" in qtide(loud, "logs", "last", "--node", "n99").stderr
    assert logs(loud, "--node", node, "--task", "say")[-1]["node"] == node
    assert logs(loud, "--node", "elsewhere") == []


def test_a_comparison_keeps_a_log_for_each_run(loud: Path) -> None:
    words = ("--cluster", "simulated", "--strategy", "static", "--strategy", "workflow", "--json")
    assert len(json.loads(qtide(loud, "compare", "loud.py", *words).stdout)["cases"]) == 2
    texts = [file.read_text() for file in (loud / "qtide-runs").rglob("agents.log")]
    assert ["three to stderr" in text for text in texts] == [True, True]


def test_following_ends_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "from pathlib import Path\nimport time\n"
        "from qtide import program, task\n"
        "def wait():\n"
        "    print('waiting', flush=True)\n"
        "    for _ in range(6000):\n"
        "        if Path('go').exists(): return\n"
        "        time.sleep(0.01)\n"
        "@program\n"
        "async def slow(): await task(wait)\n"
    )
    assert qtide(tmp_path, "submit", "slow.py", "--name", "it").returncode == 0
    command = [sys.executable, "-m", "qtide", "logs", "it", "-f"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline().endswith("1/0 wait: waiting\n")
        assert following.poll() is None
        (tmp_path / "go").touch()
        assert following.communicate(timeout=60)[0] == ""
        assert following.returncode == 0


def test_the_help_has_an_example() -> None:
    assert "Example: qtide logs last" in printed("logs", "--help")
