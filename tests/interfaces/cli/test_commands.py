"""The commands, as a user types them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qtide.core.errors import UsageError
from qtide.core.sockets import free_ports
from qtide.interfaces.cli.main import main
from tests.interfaces.cli.inside import called, printed, refused

PROGRAMS = Path(__file__).parents[2] / "runs" / "programs_for_tests.py"


def qtide(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qtide", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=folder, check=False
    )


def as_json(folder: Path, *words: object) -> Any:
    done = qtide(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SIMULATED = ("--cluster", "simulated")


def test_run_list_and_report(tmp_path: Path) -> None:
    ran = as_json(tmp_path, "run", "synthetic", "published", "--name", "one", *SIMULATED)
    assert ran["value"]["iterations"] == 4
    assert ran["metrics"]["total"] == pytest.approx(997.2)
    listed = as_json(tmp_path, "list")
    assert [(row["run"], row["state"]) for row in listed] == [("one", "done")]
    made = as_json(tmp_path, "report", "one")
    png, svg = ((tmp_path / path).read_bytes() for path in made["pictures"])
    assert png.startswith(b"\x89PNG") and b"elastic" in svg
    assert "elastic" in (tmp_path / made["page"]).read_text()


def test_the_same_result_on_every_strategy_and_cluster(tmp_path: Path) -> None:
    words = ("synthetic", "published", "--iterations", 2, "--quantum-s", 1)
    compared = as_json(tmp_path, "compare", *words, *SIMULATED, "--jobs", 1, "--jobs", 2)
    assert len(compared["cases"]) == 10
    local = as_json(tmp_path, "run", *words, "--time-scale", 0.001)
    ends = {json.dumps(json.loads(end.read_text())["value"]) for end in tmp_path.rglob("end.json")}
    assert ends == {json.dumps(local["value"])}


def test_a_program_of_the_user_and_its_arguments(tmp_path: Path) -> None:
    program = tmp_path / "my program.py"
    program.write_text(
        "from qtide import program, task\n"
        "def half(x): return x / 2\n"
        "@program\n"
        "async def mine(number: float, *, times: int = 1):\n"
        "    for _ in range(times): number = await task(half, number)\n"
        "    return number\n"
    )
    assert as_json(tmp_path, "run", "my program.py", "8", "--times", "3")["value"] == 1


def test_real_work_in_virtual_time_is_timed_by_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from qtide import program, task\n"
        "def half(x): return x / 2\n"
        "@program\n"
        "async def mine(): return await task(half, await task(half, 4))\n"
    )
    before = qtide(tmp_path, "run", "mine.py", *SIMULATED)
    assert "The task half took no time at all" in before.stdout
    assert "run mine.py once with --cluster local, then this again" in before.stdout
    real = as_json(tmp_path, "run", "mine.py", "--name", "real")
    assert real["durations"] == {}
    after = as_json(tmp_path, "run", "mine.py", *SIMULATED)
    assert after["durations"]["run"] == str(tmp_path / "qtide-runs" / "real")
    assert after["metrics"]["nodes_busy"] == pytest.approx(real["metrics"]["nodes_busy"])
    compared = as_json(tmp_path, "compare", "mine.py", *SIMULATED, "--strategy", "static")
    assert compared["durations"]["used"] == ["half"]
    assert "as long as in the run qtide-runs/real (local, " in compared["notes"][-1]


def test_a_failure_names_task_node_and_line_and_is_resumable(tmp_path: Path) -> None:
    failed = qtide(tmp_path, "run", f"{PROGRAMS}:breaks", tmp_path, "--name", "it")
    assert failed.returncode == 1
    for part in ("ZeroDivisionError", "task divide on node n", "return number / by", "resume it"):
        assert part in failed.stderr
    assert "Traceback" not in failed.stderr
    assert as_json(tmp_path, "list")[0]["state"] == "failed"
    (tmp_path / "mended").touch()
    assert as_json(tmp_path, "resume", "it")["value"] == 2
    assert (tmp_path / "marks").read_text() == "1 "


def test_a_mistake_in_the_program_itself_is_shown_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "slips.py").write_text(
        "from qtide import program\n@program\nasync def slips():\n    return {}['nothing']\n"
    )
    failed = qtide(tmp_path, "run", "slips.py", *SIMULATED)
    assert failed.returncode == 1
    assert "KeyError: 'nothing'" in failed.stderr
    assert "slips.py:4 in slips: return {}['nothing']" in failed.stderr


def test_a_result_that_cannot_be_stored(tmp_path: Path) -> None:
    failed = qtide(tmp_path, "run", f"{PROGRAMS}:unstorable")
    assert failed.returncode == 1
    assert "cannot be pickled" in failed.stderr
    assert f"{PROGRAMS}:48 in give_generator" in failed.stderr
    assert "jobs/values.py" not in failed.stderr  # whose fault it is not


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "nothing.py"), "nothing.py; name the program's Python file"),
        (("run", PROGRAMS), "which program is meant"),
        (("run", "synthetic", "--strategy", "magic"), "there is no strategy 'magic'"),
        (("run", "synthetic", "--cluster", "cloud"), "there is no cluster 'cloud'"),
        (("run", "synthetic", "--cluster", "local:x"), "a number of nodes"),
        (("run", "synthetic", "--nodes", 9), "--nodes 9 does not fit: the cluster has 3"),
        (("run", "synthetic", "--qpu", "abacus"), "no QPU 'abacus': name a device (annealer"),
        (("run", "synthetic", "--time-scale", 0), "--time-scale has to be a number above 0"),
        (("run", "synthetic", "--vqpus", 0), "--vqpus has to be at least 1"),
        (("run", "synthetic", "--favour", "me"), "--favour is time or nodes"),
        (("run", "synthetic", "--colour", "red"), "has an option --colour"),
        (("compare", "synthetic", "--jobs", 0), "--jobs has to be at least 1"),
        (("resume", "nothing"), "there is no run 'nothing'"),
        (("report", "nothing"), "there is no run 'nothing'"),
        (("resume", "last"), "there is no run in qtide-runs yet"),
        (("--config", "none.toml", "list"), "none.toml cannot be read"),
        (("run", "synthetic", "--nodes", "many"), "Invalid value for '--nodes'"),
        (("predict", "--jobs", 0), "'--jobs': it has to be greater than or equal to 1"),
    ],
)
def test_bad_usage_is_one_sentence_and_code_2(
    here: Path, words: tuple[object, ...], sentence: str
) -> None:
    assert sentence in refused(*words, code=2)
    assert not (here / "qtide-runs").exists()


def test_a_run_that_its_site_refuses_leaves_nothing_behind(here: Path) -> None:
    (port,) = free_ports(1)  # nothing listens there
    words = ("run", "synthetic", "--qpu", f"http://127.0.0.1:{port}/x")
    assert "does not answer" in refused(*words, code=1)
    assert "there is no run" in printed("list")


def test_a_refused_command_ends_with_code_2_and_a_traceback_only_if_wanted(tmp_path: Path) -> None:
    failed = qtide(tmp_path, "run", "nothing.py")
    assert (failed.returncode, failed.stderr.startswith("qtide: there is no file")) == (2, True)
    assert "Traceback" in qtide(tmp_path, "--traceback", "run", "nothing.py").stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("iterations = 2\n[[phase]]\ntask = [1]\n", "no key 'task'"),
        ("[[phase]]\ntasks = ['x']\n", "tasks is a list of seconds"),
        ("[[phase]]\nquantum = 'long'\n", "quantum is a number of seconds"),
        ("[[phase]]\n", "neither tasks nor quantum"),
        ("iterations = 0\n", "iterations is a number from 1 on"),
        ("title = 'empty'\n", "there is no phase"),
        ("not toml", "is not valid TOML"),
    ],
)
def test_a_wrong_shape_is_named(here: Path, text: str, sentence: str) -> None:
    (here / "shape.toml").write_text(text)
    failed = called("run", "synthetic", "shape.toml", *SIMULATED)
    assert isinstance(failed.exception, UsageError)
    assert sentence in str(failed.exception)


def test_a_journal_of_another_program(tmp_path: Path) -> None:
    as_json(tmp_path, "run", "synthetic", "--name", "one", *SIMULATED)
    run = tmp_path / "qtide-runs" / "one" / "run.json"
    described = json.loads(run.read_text())
    described |= {"program": f"{PROGRAMS}:squares", "words": [str(tmp_path)]}
    run.write_text(json.dumps(described))
    (run.parent / "end.json").unlink()
    failed = qtide(tmp_path, "resume", "one")
    assert failed.returncode == 1
    assert "the journal of the program synthetic, not of squares" in failed.stderr


@pytest.mark.parametrize("cluster", ["simulated", "local:1"])
def test_a_disk_that_fills_up_loses_nothing(tmp_path: Path, cluster: str) -> None:
    """A limit on the file size stands for a full disk."""
    (tmp_path / "fills.py").write_text(
        "from qtide import program, task\n"
        "import numpy as np\n"
        "def ones(size): return np.ones(size)\n"
        "@program\n"
        "async def fills():\n"
        "    return [float((await task(ones, 9000 * n)).sum()) for n in (1, 2, 3)]\n"
    )
    qtide = f"{sys.executable} -m qtide"
    run = f"exec {qtide} run fills.py --name it --cluster {cluster}"
    failed = subprocess.run(
        ["bash", "-c", f"ulimit -f 100; {run}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert failed.returncode == 1
    assert "make room, then resume the run" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert as_json(tmp_path, "resume", "it")["value"] == [9000, 18000, 27000]


def test_a_folder_that_cannot_be_written(here: Path) -> None:
    (here / "file").touch()
    said = refused("run", "synthetic", "--runs", "file", *SIMULATED, code=2)
    assert "no run can be kept in file" in said


def test_importing_qtide_is_light(tmp_path: Path) -> None:
    script = "import sys, qtide; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert {"numpy", "asyncio", "dimod", "matplotlib", "typer"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("module", ["list", "logs", "service", "serve"])
def test_commands_that_only_read_load_little(module: str) -> None:
    script = f"import sys, qtide.interfaces.cli.{module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"numpy", "numba", "matplotlib", "rich", "dimod", "pydantic", "fastapi"}
    assert heavy.isdisjoint(done.stdout.split())


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_escape_sequences_do_not_reach_the_terminal(here: Path) -> None:
    (here / "evil.py").write_text(
        "from qtide import program, task\n"
        f"def speak(): print({ESCAPES!r})\n"
        "@program\n"
        "async def evil():\n"
        "    await task(speak)\n"
        f"    return {ESCAPES!r}\n"
    )
    texts = [called("run", "evil.py", "--name", "it")]
    record = json.loads((here / "qtide-runs/it/run.json").read_text())
    record["strategy"] = record["cluster"] = f"local{ESCAPES}"
    (here / "qtide-runs/it/run.json").write_text(json.dumps(record))
    texts += [called(*words) for words in (("list",), ("show", "it"), ("logs", "it"))]
    for done in texts:
        assert not set("\x1b\x07\x9b\u202e") & set(done.output), done.output
    assert "owned" in texts[-1].output


def test_nor_do_those_in_errors(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", f"x{ESCAPES}", "--runs", f"runs{ESCAPES}"])
    said = capsys.readouterr().err
    assert "there is no run" in said
    assert not set("\x1b\x07\x9b\u202e") & set(said), said


CTRL_C = """
import sys
class CtrlC:
    def find_spec(self, name, *_):
        if name == {name!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
sys.argv = ["qtide", "list"]
from qtide.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["qtide.interfaces.cli.main", "qtide.interfaces.cli.list"])
def test_ctrl_c_while_modules_are_loaded_leaves_no_traceback(name: str) -> None:
    words = [sys.executable, "-c", CTRL_C.format(name=name)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)
