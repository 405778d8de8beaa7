"""Growing and shrinking, with data that is checked after every change."""

import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

from qtide.core.ledger import read
from tests.backends.slurm.stage import Stage as SlurmStage
from tests.backends.slurm.stage import until
from tests.mpi.stage import PROGRAMS, Stage

EXAMPLES = Path(__file__).parents[2] / "examples" / "mpi"


def test_data_is_complete_after_every_change(local: Stage) -> None:
    assert local.run("cycle.py", "2") == "done 10\n"


def test_a_program_that_mpiexec_started_begins_with_all_its_ranks(local: Stage) -> None:
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    assert local.run("founders.py", "3", "1", "2", launcher=(mpiexec, "-n", "3")) == "sizes 3 1 2\n"


def test_the_same_by_srun(on_slurm: Stage, stage: SlurmStage) -> None:
    """The second growth needs the nodes that the program was started with, and had given back."""
    launcher = ("srun", "--mpi=pmi2", "--ntasks=3", "--nodes=3")
    assert on_slurm.run("founders.py", "3", "1", "3", launcher=launcher) == "sizes 3 1 3\n"
    assert until(lambda: stage.idle() == 3)
    (ledger,) = Path(on_slurm.folder).rglob("ledger.jsonl")
    spans = read(ledger)
    held = sorted((each.start, each.end, each.lane) for each in spans if each.what == "held")
    founders, companions = held[:3], held[3:]
    assert len(companions) == 2
    returned = [end for _, end, lane in founders if lane in {lane for *_, lane in companions}]
    assert len(returned) == 2
    assert max(returned) < min(end for _, end, _ in companions)


def test_a_newcomer_that_does_not_come_to_the_others_is_told_where_they_wait(local: Stage) -> None:
    process = local.start("astray.py")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "but the others wait for it at astray.py:11; let that call be the first" in err
    assert until(lambda: not local.processes(), 10), local.processes()


def test_nodes_just_released_are_grown_onto_again(on_slurm: Stage, stage: SlurmStage) -> None:
    assert on_slurm.run("cycle.py", "4", limit=180) == "done 20\n"
    assert until(lambda: stage.idle() == 3)


def test_growth_that_never_comes_is_given_up_and_its_nodes_are_not_taken(
    on_slurm: Stage, stage: SlurmStage
) -> None:
    words = ("sbatch", "--parsable", "--nodes=3", "--exclusive", "--output=/dev/null")
    blocker = stage.slurm(*words, "--wrap=sleep 60").strip()
    assert until(lambda: stage.running() == [int(blocker)])
    process = on_slurm.start("waits.py")
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "went on\n", process.communicate(timeout=10)
        stage.slurm("scancel", blocker)
        out, err = process.communicate("go on\n", timeout=40)
        assert (process.returncode, out) == (0, "done 2\n"), err
    finally:
        stage.slurm("scancel", blocker)
        process.kill()
        process.wait(10)
    assert until(lambda: stage.idle() == 3)


def test_if_the_root_is_killed_its_companions_end(on_slurm: Stage, stage: SlurmStage) -> None:
    process = on_slurm.start("hold.py")
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "holding 3\n", process.communicate(timeout=10)
        assert len(stage.running()) == 2
    finally:
        process.kill()
        process.wait(10)
    assert until(lambda: not on_slurm.processes(), 10), on_slurm.processes()
    assert until(lambda: not stage.running(), 10)
    assert until(lambda: stage.idle() == 3)


def test_a_policy_is_followed_while_the_program_computes_on(local: Stage) -> None:
    told = "kept for the cool-down: True\ncomputed on meanwhile: True\n"
    assert local.run("checks.py") == told


def test_the_answer_does_not_depend_on_the_changes(local: Stage) -> None:
    program = str(EXAMPLES / "conjugate_gradient.py")
    answers = [local.run(program, *sizes) for sizes in (["1"], ["1", "3", "2"])]
    assert answers[0] == answers[1]
    assert answers[0].startswith("2")


def test_a_port_changes_few_lines_and_no_result(local: Stage) -> None:
    plain, port = (EXAMPLES / f"diffusion{each}.py" for each in ("_plain", ""))
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    expected = local.run(str(plain), launcher=(mpiexec, "-n", "3"))
    assert expected.startswith("step 100: hottest ")
    assert local.run(str(port)) == expected
    before, after = (
        [line.strip() for line in each.read_text().partition("SIDE, STEPS")[2].splitlines()]
        for each in (plain, port)
    )
    changed = [line for line in difflib.ndiff(before, after) if line[0] == "+" and line[2:]]
    assert len(changed) <= 10, changed


def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['mpi4py'] = None; import qtide.mpi.library as l; l.library()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.endswith(
        "MPI programs need mpi4py and MPICH; install them: pip install 'qtide[mpi]'"
    )


def test_the_parts_of_each_change_are_in_the_ledger(local: Stage) -> None:
    local.run("cycle.py", "1")
    (ledger,) = Path(local.folder).rglob("ledger.jsonl")
    events = [json.loads(line) for line in ledger.read_text().splitlines()]
    notes = [event for event in events if "note" in event]
    assert [event["note"] for event in notes] == ["grew", "shrank", "grew", "grew", "shrank"]
    assert {"grant", "start", "connect", "move"} <= set(notes[0])
    assert "move" in notes[1]
    command = [
        sys.executable,
        "-m",
        "qtide",
        "show",
        "last",
        "--runs",
        str(local.folder),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert "how the number of nodes changed" in shown
    assert re.search(r"grew from 1 node to 3 nodes: grant .* start .* connect .* move ", shown)


def test_a_relative_script_with_two_blocks_grows_in_both_after_a_change_of_folder(
    local: Stage, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "moves.py").write_text((PROGRAMS / "moves.py").read_text())
    done = subprocess.run(
        [sys.executable, "moves.py"],
        cwd=tmp_path,
        env=local.variables | {"QTIDE_RUNS": str(tmp_path / "kept")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *second = done.stdout.splitlines()
    assert first == "first 2 6"
    assert second == ["second 3 11 None"] * 3  # nobody but the root passed into it
    assert [each.name[:5] for each in (tmp_path / "kept").iterdir()] == ["moves"] * 2


def test_nodes_of_a_launcher_count_as_held_until_the_program_ends(local: Stage) -> None:
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    local.run("founders.py", "3", "1", launcher=(mpiexec, "-n", "3"))
    (ledger,) = Path(local.folder).rglob("ledger.jsonl")
    spans = read(ledger)
    held = [each.end for each in spans if each.what == "held"]
    busy = sorted(each.end for each in spans if each.what == "busy")
    assert len(held) == 3
    assert min(held) >= busy[1]


def test_a_block_after_one_that_could_not_begin_is_refused(tmp_path: Path) -> None:
    """It used to end the program without a word, as if it were a member that leaves."""
    (tmp_path / "twice.py").write_text(
        "from qtide.malleable import Job\n"
        "for cluster in ('none', 'local'):\n"
        "    try:\n"
        "        with Job(most=2, cluster=cluster):\n"
        "            print('began')\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    words = [sys.executable, "twice.py"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("there is no cluster 'none'")
    assert second.startswith("an earlier Job block of this program could not begin")
