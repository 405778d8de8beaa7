"""Records of runs: what is in them, and that the profile's own checker finds nothing wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from qtide import session
from qtide.runs.folder import RunFolder
from tests.interfaces.cli.inside import called, printed, refused
from tests.interfaces.export.contexts import CONTEXTS
from tests.service.apis.environments import python_with

CHECKER = "roc-validator==0.13.0"
LIMIT = 300.0
PROGRAM = '''
"""A program with a phase of each kind."""
from pathlib import Path
from qtide import classical, pretend, program, quantum, task, together
from qtide.backends.payloads.payload import Burst


def count(path, times):
    pretend(2.0)
    return times * len(Path(path).read_text().split())


def solve(answer):
    pretend(3.0)
    return answer


def fail(flag):
    if not Path(flag).exists():
        raise ValueError("there is no flag")
    return "found"


@program
async def every(text: Path, times: int = 2, flag: str = "", ünï: bool = True, seed: int = 0):
    """Counts words."""
    counted = await classical(task(count, text, times), task(count, text, 1))
    either = await quantum(Burst(900.0, 7), otherwise=task(solve, 7), patience=0.0)
    both = await together(quantum(Burst(5.0, 1)), task(solve, 2))
    if flag:
        await task(fail, flag)
    return [counted, either, both]


@program
async def nothing():
    return 5


def words_of(path):
    return Path(path).read_text().split()


def joined(words, start):
    return [*words, str(start)]


@program
async def flow(text: Path, start: float = 1000.5):
    """Passes results on, as they are and computed."""
    words = await task(words_of, text)
    first, second = await classical(task(len, words), task(joined, words, start))
    answer = await quantum(Burst(first, 7))

    async def branch(mark):
        counted = await task(sorted, second)
        return await task(sum, [mark, len(counted)])

    return await together(branch(5), task(repr, words))
'''

Entities = dict[str, dict[str, Any]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "every_kind.py").write_text(PROGRAM)
    (tmp_path / "some words.txt").write_text("one two three")
    yield tmp_path
    sys.modules.pop("every_kind", None)  # the next one is another file


def run(*words: Any) -> None:
    printed("run", *words, "--cluster", "simulated:2", "--seed", 4)


def fails(*words: Any) -> None:
    done = called(
        "run", "every_kind.py:every", "some words.txt", "--cluster", "simulated:2", *words
    )
    assert done.exit_code == 1 or getattr(done.exception, "exit_code", 0) == 1


def entities(crate: Path) -> Entities:
    name = "ro-crate-metadata.json"
    if crate.suffix == ".zip":
        with ZipFile(crate) as archive:
            text = archive.read(name).decode()
    else:
        text = (crate / name).read_text()
    return {each["@id"]: each for each in json.loads(text)["@graph"]}


def executions(found: Entities) -> list[dict[str, Any]]:
    return [
        each
        for name, each in found.items()
        if name.startswith("#phase-") and "name" in each and each["@type"] == "CreateAction"
    ]


def value(found: Entities, name: str) -> Any:
    return found[name]["value"]


def test_a_record_tells_what_was_run_on_what_and_what_came_out(here: Path) -> None:
    run("every_kind.py:every", "some words.txt", "--name", "it")
    printed(
        "export", "ro-crate", "it", "-o", "record", "--licence", "https://spdx.org/licenses/MIT"
    )
    found, record = entities(here / "record"), here / "record"
    assert (record / "every_kind.py").read_text() == PROGRAM
    assert (record / "inputs/text/some words.txt").read_text() == "one two three"
    assert json.loads((record / "result.json").read_text()) == {"value": [[6, 3], 7, [1, 2]]}
    assert found["./"]["license"] == "https://spdx.org/licenses/MIT"
    assert found["#input-text"]["workExample"] == {"@id": "inputs/text/some%20words.txt"}
    assert (value(found, "#input-times-value"), value(found, "#input-seed-value")) == (2, 4)
    first, second, *both = executions(found)
    assert first["description"] == "classical 2 × count on n1, n2"
    assert value(found, "#phase-1-node-seconds-busy") == 4.0
    assert json.loads((record / first["result"]["@id"]).read_text()) == [6, 3]
    assert (
        second["description"]
        == "quantum Burst on annealer, with an input that the program made after phase 1: "
        "the QPU should begin in 0.0 s, and may in 0 s"
    )
    assert sorted(each["name"] for each in both) == ["Phase 3.1: Burst", "Phase 3.2: solve"]
    assert value(found, "#run-qpu-seconds-busy") == 905.0
    assert found["#run"]["startTime"] < first["endTime"] < found["#run"]["endTime"]
    assert "bqm" in value(found, "#device-annealer-formats")


def test_data_flows_from_phase_to_phase(here: Path) -> None:
    run("every_kind.py:flow", "some words.txt", "--name", "it")
    printed("export", "ro-crate", "it", "-o", "record")
    found = entities(here / "record")
    given = {each["name"].split()[1][:-1]: each.get("object", []) for each in executions(found)}
    results = {each["name"].split()[1][:-1]: each["result"] for each in executions(found)}
    assert given["1"] == {"@id": "inputs/text/some%20words.txt"}
    assert given["2"] == [{"@id": "#input-start-value"}, results["1"]]
    assert given["3"] == results["2"]  # computed: a Burst
    assert given["4.1.1"] == results["2"]
    assert given["4.1.2"] == results["4.1.1"]
    assert given["4.2"] == results["1"]
    described = {each["name"].split()[1][:-1]: each["description"] for each in executions(found)}
    assert "an input that the program made after phase 2" in described["3"]
    assert "made" not in described["4.2"]


def test_a_resumed_run_has_both_tries(here: Path) -> None:
    fails("--flag", "flag", "--name", "it")
    printed("export", "ro-crate", "it", "-o", "failed.zip")
    failed = entities(here / "failed.zip")
    assert failed["#run"]["actionStatus"] == "http://schema.org/FailedActionStatus"
    assert "there is no flag" in failed["#run"]["error"]
    (here / "flag").touch()
    printed("resume", "it")
    printed("export", "ro-crate", "it", "-o", "record.zip")
    tries = [each for each in executions(entities(here / "record.zip")) if "fail" in each["name"]]
    assert [each["actionStatus"].rpartition("/")[2] for each in tries] == [
        "FailedActionStatus",
        "CompletedActionStatus",
    ]


def test_every_kind_of_record_is_valid(here: Path) -> None:
    """One process for all: the checker's imports and its profiles take longest."""
    run("every_kind.py:every", "some words.txt", "--name", "done")
    fails("--flag", "no", "--name", "failed")
    run("every_kind.py:nothing", "--name", "no-phase")
    run("every_kind.py:flow", "some words.txt", "--name", "flow")
    with session(name="script", cluster="simulated:2") as scripted:
        scripted.submit(len, "four").result()
    _make_old(RunFolder(here / "qtide-runs" / "old"), here / "qtide-runs" / "done")
    (here / "gone.py").write_text(PROGRAM)
    run("gone.py:every", "some words.txt", "--name", "gone")
    (here / "gone.py").unlink()
    del sys.modules["gone"]
    names = ["done", "failed", "script", "old", "gone", "flow"]
    for name in [*names, "no-phase"]:
        printed("export", "ro-crate", name, "-o", f"{name}.zip" if name == "done" else f"c-{name}")
    crates = [
        f"provenance-run-crate={'done.zip' if each == 'done' else f'c-{each}'}" for each in names
    ]
    said = checked(here, *crates, "workflow-run-crate=c-no-phase")
    assert {crate: each["issues"] for crate, each in said.items()} == {crate: [] for crate in said}
    assert len(said) == 7 and all(each["checks"] > 50 for each in said.values())


def test_the_checker_finds_what_is_missing(here: Path) -> None:
    run("every_kind.py:every", "some words.txt", "--name", "it")
    printed("export", "ro-crate", "it", "-o", "record")
    file = here / "record" / "ro-crate-metadata.json"
    file.write_text(file.read_text().replace('"propertyID"', '"url"'))
    said = checked(here, "provenance-run-crate=record")
    assert any("MUST have a propertyID" in each for each in said["record"]["issues"])


def test_what_cannot_be_exported_is_said(here: Path) -> None:
    run("every_kind.py:nothing", "--name", "it")
    (here / "there").mkdir()
    assert "there exists already" in refused("export", "ro-crate", "it", "-o", "there")
    (here / "qtide-runs" / "new").mkdir()
    (here / "qtide-runs" / "new" / "run.json").write_text('{"program": "synthetic"}')
    assert "the run new is new; export it when it has ended" in refused("export", "ro-crate", "new")


def checked(here: Path, *crates: str) -> dict[str, Any]:
    (here / "contexts.json").write_text(json.dumps(CONTEXTS))
    program = Path(__file__).with_name("validate.py")
    command = [str(python_with(CHECKER)), str(program), "contexts.json", *crates]
    done = subprocess.run(command, cwd=here, capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return found


def _make_old(old: RunFolder, new: Path) -> None:
    """A run of the version before, whose ledger has no keys of phases."""
    old.path.mkdir()
    for file in new.iterdir():
        if file.is_file():
            (old.path / file.name).write_bytes(file.read_bytes())
    events = [json.loads(line) for line in old.ledger.read_text().splitlines()]
    for each in events:
        each.pop("key", None)
    old.ledger.write_text("".join(f"{json.dumps(each)}\n" for each in events))
