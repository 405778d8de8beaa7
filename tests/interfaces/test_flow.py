"""Flows: programs as TOML files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qtide.core.errors import UsageError
from qtide.interfaces.flow import load
from tests.interfaces.cli.inside import called, printed

FLOW = """
# Counts until the energy is low enough.
result = "sum/sum.json"

[inputs]
limit = -2
parts = ["a", "b"]

[files]
start = "start.txt"

[[step]]
name = "round"
most = 5
until = { file = "sum/sum.json", value = "found.energy", at_most = "{limit}" }

[[step.step]]
name = "part"
scatter = { letter = "{parts}", digit = [1, 2] }
command = ["sh", "-c", "cat {start} > out.txt; echo {letter}{digit} {round} >> out.txt"]
writes = ["out.txt"]

[[step.step]]
name = "model"
command = ["./model", "{round}", "{sum/sum.json?}"]
writes = ["model.json"]

[[step.step]]
name = "solve"
quantum = "{model/model.json}"

[[step.step]]
name = "sum"
command = ["./sum", "{solve/answer.json}", "{part/out.txt}"]
writes = "*.json"
"""
MODEL = """#!/bin/sh
echo "$# words" >&2
printf '{"vartype": "BINARY", "linear": [["x", -%s]]}' "$1" > model.json
"""
SUM = """#!%s
import json, sys
answer = json.load(open(sys.argv[1]))["samples"][0]
lines = [open(file).read().split("\\n") for file in sys.argv[2:]]
json.dump({"found": {"energy": answer["energy"]}, "lines": lines}, open("sum.json", "w"))
"""


@pytest.fixture
def flow(here: Path) -> Path:
    """A flow with its programs, in the present folder."""
    (here / "start.txt").write_text("start\n")
    for name, text in (("model", MODEL), ("sum", SUM % sys.executable)):
        (here / name).write_text(text)
        (here / name).chmod(0o755)
    (here / "flow.toml").write_text(FLOW)
    return here / "flow.toml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_flow_runs_until_its_condition_holds(flow: Path) -> None:
    printed("run", "flow.toml", "--cluster", "local:2", "--time-scale", "0.001", "--name", "it")
    folder = flow.parent / "qtide-runs" / "it"
    value = json.loads((folder / "end.json").read_text())["value"]
    assert value["found"] == {"energy": -2.0}
    assert value["lines"] == [["start", f"{each} 2", ""] for each in ("a1", "a2", "b1", "b2")]
    log = (folder / "agents.log").read_text()
    assert "\tmodel\t1 words" in log  # in the first round there is no sum.json
    assert "\tmodel\t2 words" in log


def test_a_flow_that_failed_is_resumed(flow: Path) -> None:
    (flow.parent / "sum").chmod(0o644)
    failed = called("run", "flow.toml", "--cluster", "local:2", "--time-scale", "0.001")
    assert "the command sum" not in str(failed.exception)
    assert "is not executable: chmod +x" in str(failed.exception)
    (flow.parent / "sum").chmod(0o755)
    assert '"energy": -2.0' in printed("resume", "last")


def test_help_shows_the_inputs_of_a_flow(flow: Path) -> None:
    text = printed("run", "flow.toml", "--help")
    assert "Counts until the energy is low enough." in text
    assert "--limit" in text
    assert "--parts" in text
    assert "--start" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no [[step]]"),
        ("[[step]", "is not valid TOML"),
        ("[[stp]]\nname = 'a'", "the flow has no key 'stp'; did you mean 'step'?"),
        ("[[step]]\ncommand = ['a']", "each step needs a name"),
        ("[[step]]\nname = 'a'", "the step 'a' needs one of command, quantum and step"),
        ("[[step]]\nname = 'a'\ncommand = ['a']\nquantum = 'b'", "needs one of command, quantum"),
        ("[[step]]\nname = 'a'\ncomand = ['a']\nquantum = 'b'", "has no key 'comand'"),
        ("[[step]]\nname = 'a'\ncomand = ['a']", "no key 'comand'; did you mean 'command'?"),
        ("[[step]]\nname = 'a'\ncommand = ['{b/x}']", "refers to the step 'b', which does not"),
        ("[[step]]\nname = 'a'\nstep = []", "needs `most`"),
        (
            "[[step]]\nname = 'a'\nmost = 2\nuntil = {file = 'b/x'}\n"
            "[[step.step]]\nname = 'b'\ncommand = ['b']",
            "needs a file, and one of at_least, at_most and is",
        ),
        ("[[step]]\nname = 'a'\ncommand = 'ls -l'", "has to be a list of words, as ["),
        ("[[step]]\nname = 'a'\ncommand = ['a']\nnodes = 0", "nodes of the step 'a' has to be"),
        ("[[step]]\nname = 'a'\ncommand = ['a']\nwithin = 'soon'", "has to be a number of seconds"),
        ("[[step]]\nname = 'a'\ncommand = ['a']\nwrites = '../b'", "within its folder, not '../b'"),
        ("[[step]]\nname = 'a'\ncommand = ['a']\nneeds = {corse = 1}", "did you mean 'cores'?"),
        ("[[step]]\nname = 'a'\ncommand = ['a']\nscatter = {x = 3}", "has to be a table of lists"),
        ("[[step]]\nname = 'a'\nquantum = 'a.txt'", "has to be files that end with .qasm, .qpy"),
        ("[[step]]\nname = 'a'\nquantum = 'a.qasm'\npatience = 0", "but no `otherwise`"),
        ("result = 3\n[[step]]\nname = 'a'\ncommand = ['a']", "result has to be a file of a step"),
        ("files = {a = 1}\n[[step]]\nname = 'a'\ncommand = ['a']", "[files] has to be a table"),
        ("inputs = {class = 1}\n[[step]]\nname = 'a'\ncommand = ['a']", "'class' cannot be"),
        ("[inputs]\nfolder = 1\n[[step]]\nname = 'a'\ncommand = ['a']", "'folder' cannot be"),
        (2 * "[[step]]\nname = 'a'\ncommand = ['a']\n", "two steps have the name 'a'"),
    ],
)
def test_what_is_wrong_in_a_flow_is_said_before_it_runs(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(file)
    assert told in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_payload_whose_file_is_an_input_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text("[files]\ncircuit = 'a.qasm'\n[[step]]\nname = 'a'\nquantum = '{circuit}'\n")
    assert load(file).name == "flow"


def test_the_published_clustering_is_a_flow(here: Path) -> None:
    """It finds what the application finds, round by round."""
    example = Path(__file__).parents[2] / "docs" / "examples" / "clustering.toml"
    terms = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    terms |= {"NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": ""}  # it starts five times
    done = subprocess.run(
        [sys.executable, "-m", "qtide", "run", example, "--blobs", "150", "--time-scale", "0.001"],
        env=os.environ | terms,
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    result = json.loads(done.stdout.partition("result: ")[2].splitlines()[0])
    assert result["silhouette"] >= 0.8
    assert result["clusters"] > 1
