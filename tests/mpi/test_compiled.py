"""Malleable programs in C: built by the command, on this machine and on a real Slurm."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService
from tests.backends.slurm.fixtures import install
from tests.backends.slurm.stage import Stage as SlurmStage
from tests.backends.slurm.stage import until
from tests.mpi.stage import PROGRAMS, Stage

EXAMPLES = Path(__file__).parents[2] / "examples" / "mpi"
BIN = Path(sys.executable).parent
"""MPICH's compilers and launchers are beside Python."""
CHECKSUM = "60 steps, checksum 80d2d95281dcc3fb\n"


@pytest.fixture(scope="session")
def library(compilers: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the command has built the library, once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    folder, made = shared / "libqtide", shared / "libqtide-is-made"
    command = [sys.executable, "-m", "qtide", "mpi", "build"]
    words = [*command, "--to", str(folder), "--cc", str(BIN / "mpicc_abi")]
    with (shared / "libqtide.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not made.exists():
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            made.touch()
    return folder


@pytest.fixture(scope="session")
def compiled(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Compile a program as a user would, with what pkg-config says; its path."""
    folder = tmp_path_factory.mktemp("compiled")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "qtide"],
        env=os.environ | {"PKG_CONFIG_PATH": str(library / "lib" / "pkgconfig")},
        capture_output=True,
        text=True,
        check=True,
    )

    def compiled(source: Path) -> str:
        program = folder / source.stem
        compiler = BIN / ("mpicc_abi" if source.suffix == ".c" else "mpicxx_abi")
        words = [
            str(compiler),
            "-Wall",
            "-Werror",
            "-o",
            str(program),
            str(source),
            *found.stdout.split(),
        ]
        if not program.exists():
            subprocess.run(words, check=True, timeout=60)
        return str(program)

    return compiled


@pytest.fixture
def heat(compiled: Callable[[Path], str]) -> str:
    return compiled(EXAMPLES / "heat.c")


@pytest.fixture
def changes(compiled: Callable[[Path], str]) -> str:
    return compiled(PROGRAMS / "changes.c")


def ran(stage: Stage, *command: str, limit: float = 60.0) -> str:
    """What a compiled program prints; it has to succeed, and leave no process behind."""
    done = subprocess.run(
        command,
        cwd=stage.folder,
        env=stage.variables,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert until(lambda: not in_folder(stage), 10), in_folder(stage)
    return done.stdout


def in_folder(stage: Stage) -> list[int]:
    """The processes of a test: they run in its folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == stage.folder:
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def test_the_answer_does_not_depend_on_the_changes(local: Stage, heat: str) -> None:
    assert ran(local, heat, "60") == CHECKSUM
    assert ran(local, heat, "60", "1", "3", "2") == CHECKSUM
    assert ran(local, str(BIN / "mpiexec"), "-n", "3", heat, "60", "3", "1", "2") == CHECKSUM


CMAKE = f"""
cmake_minimum_required(VERSION 3.18)
project(heat C)
find_package(qtide REQUIRED)
add_executable(heat {EXAMPLES / "heat.c"})
target_link_libraries(heat qtide::qtide)
"""


def test_cmake_finds_the_library(local: Stage, library: Path) -> None:
    if not all(map(shutil.which, ("cmake", "make"))):
        install("there is no CMake", ["cmake", "make"])
    (local.folder / "CMakeLists.txt").write_text(CMAKE)
    places = [f"-DCMAKE_PREFIX_PATH={library}", f"-DMPI_C_COMPILER={BIN / 'mpicc_abi'}"]
    ran(local, "cmake", *places, ".")
    ran(local, "make", "--silent")
    assert ran(local, "./heat", "60") == CHECKSUM


def test_the_command_runs_it_and_the_run_is_shown(local: Stage, heat: str) -> None:
    qtide = [sys.executable, "-m", "qtide"]
    run = [*qtide, "mpi", "run", "--runs", "kept"]
    assert ran(local, *run, heat, "60", "1", "2") == CHECKSUM
    made = json.loads(ran(local, *run, "--json", heat, "60", "1", "2"))
    assert (made["exit_code"], made["run"][:5]) == (0, "heat-")
    shown = ran(local, *qtide, "show", "last", "--runs", "kept")
    assert re.search(r"grew from 1 node to 2 nodes: grant .* start .* connect .* move ", shown)


def test_if_the_helper_is_killed_the_root_finishes_alone(local: Stage, heat: str) -> None:
    expected = "3000 steps, checksum 7b58f1fb981e728a\n"
    process = subprocess.Popen(
        [heat, "3000", "3"],
        cwd=local.folder,
        env=local.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert until(lambda: sum(name_of(each) == "heat" for each in in_folder(local)) == 3, 30)
        (helper,) = [each for each in in_folder(local) if name_of(each) != "heat"]
        os.kill(helper, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(10)
    assert (process.returncode, out) == (0, expected), err
    assert "the helper of the job is gone; the job goes on with its root alone" in err
    assert until(lambda: not in_folder(local), 10), in_folder(local)


PHASES = """
from qtide import command, program


@program
async def phases(heat: str) -> list[str]:
    fixed = await command(heat, "60").on(2)
    grown = await command(heat, "60", "1", "2")
    return [fixed.output, grown.output]
"""


def by_flow(stage: Stage, *command: str) -> str:
    """What a command prints, as a step of a flow."""
    step = f"[[step]]\nname = 'step'\ncommand = {json.dumps(command)}\n"
    (stage.folder / "flow.toml").write_text(step)
    words = [sys.executable, "-m", "qtide", "run", "flow.toml", "--cluster", "local:1", "--json"]
    return str(json.loads(ran(stage, *words))["value"]) + "\n"


def test_it_is_a_phase_of_a_program_on_fixed_nodes_and_growing(local: Stage, heat: str) -> None:
    (local.folder / "phases.py").write_text(PHASES)
    local.variables["PATH"] = f"{BIN}:{local.variables['PATH']}"
    words = [sys.executable, "-m", "qtide", "run", "phases.py", heat, "--cluster", "local:3"]
    assert json.loads(ran(local, *words, "--json"))["value"] == [CHECKSUM, CHECKSUM]


def test_data_in_every_layout_is_complete_after_every_change(local: Stage, changes: str) -> None:
    assert ran(local, changes, "20", "1", "4") == "done 20\n"


def test_the_same_on_slurm(on_slurm: Stage, stage: SlurmStage, changes: str) -> None:
    assert ran(on_slurm, changes, "12", "2", "3") == "done 12\n"
    assert until(lambda: stage.idle() == 3)


def test_processes_that_srun_started_begin_together(
    on_slurm: Stage, stage: SlurmStage, heat: str
) -> None:
    srun = ("srun", "--mpi=pmi2", "--ntasks=2", "--nodes=2")
    assert ran(on_slurm, *srun, heat, "60", "2", "1", "2") == CHECKSUM
    assert until(lambda: stage.idle() == 3)


def test_members_and_newcomers_that_are_killed_cost_no_data(local: Stage, changes: str) -> None:
    chance = random.Random(4)
    process = subprocess.Popen(
        [changes, "12", "3", "3", "save"],
        cwd=local.folder,
        env=local.variables | {"UCX_LOG_LEVEL": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killed = 0
    try:
        last = time.monotonic() + 60
        while killed < 2 and process.poll() is None and time.monotonic() < last:
            time.sleep(chance.uniform(0.0, 0.1))
            others = [
                each
                for each in in_folder(local)
                # a child of the root is its helper, before it has its own name
                if name_of(each) == "changes" and process.pid not in (each, parent_of(each))
            ]
            if others:
                os.kill(chance.choice(others), signal.SIGKILL)
                killed += 1
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 0, err
    assert out.endswith("done 12\n"), out
    assert killed


@pytest.mark.parametrize("moment", ["connect", "sent"])
def test_a_growth_that_is_given_up_leaves_no_trace_in_later_sums(
    local: Stage, compiled: Callable[[Path], str], moment: str
) -> None:
    """A barrier that only some ranks had entered was once taken for a part of the next sum; and
    MPI sent to an endpoint that did not exist, if a newcomer died when it had sent something."""
    local.variables |= {"UCX_LOG_LEVEL": "fatal"}
    words = ("joined", "sent") if moment == "sent" else ("joined",)
    told = ran(local, compiled(PROGRAMS / "given_up.c"), *words)
    if moment == "sent":  # the first newcomer dies, then two others come
        expected = ["rank 0 of 1: 500", *(3 * [f"rank {rank} of 3: 1503" for rank in range(3)])]
    else:
        expected = 4 * ["rank 0 of 2: 1001", "rank 1 of 2: 1001"]
    assert sorted(told.splitlines()) == sorted(expected)


@pytest.mark.parametrize("transports", ["all", "tcp,self"])
def test_survivors_live_on_when_ucx_notices_a_loss_before_them(
    local: Stage, compiled: Callable[[Path], str], transports: str
) -> None:
    local.variables |= {"UCX_TLS": transports, "UCX_LOG_LEVEL": "fatal"}
    assert ran(local, compiled(PROGRAMS / "dying.c")) == "4\n"


def test_collectives_leave_the_same_bytes_as_those_of_mpi(
    local: Stage, compiled: Callable[[Path], str]
) -> None:
    assert ran(local, compiled(PROGRAMS / "collectives.c")) == "the same\n"


def test_no_call_that_only_blocks_hangs_when_a_rank_is_killed(
    local: Stage, compiled: Callable[[Path], str]
) -> None:
    local.variables |= {"UCX_LOG_LEVEL": "error"}
    told = ran(local, compiled(PROGRAMS / "losses.c")).splitlines()
    assert len(told) == 13
    assert [line for line in told if not line.endswith(" lost")] == []


def test_what_cannot_be_registered_is_refused_with_a_reason(
    local: Stage, compiled: Callable[[Path], str]
) -> None:
    """Two states of one name were saved in one file."""
    told = ran(local, compiled(PROGRAMS / "registering.c")).splitlines()
    letters = "data needs a name of letters and digits, up to 63"
    assert told == [
        "early: data is registered after qtide_init()",
        "taken",
        "number: two states, or two arrays, have the same name",
        f"../number: {letters}",
        f"NULL: {letters}",
        "the state nothing needs the address of its bytes",
        "taken",
        "rows: two states, or two arrays, have the same name",
        "the array more needs up to 2^31 rows and bytes per row, and a block of 0 or more",
        "qtide_on_change() needs a function",
        "late: data is registered before qtide_begin(), so that newcomers have it, too",
    ]


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_if_the_root_is_killed_nothing_is_left_and_the_next_start_goes_on(
    local: Stage, heat: str
) -> None:
    words = [heat, "1000000", "3"]
    process = subprocess.Popen(words, cwd=local.folder, env=local.variables)
    try:
        runs = local.folder / "qtide-runs"
        assert until(lambda: bool(list(runs.glob("*/saved/*/manifest"))), 60)
        assert until(lambda: len(in_folder(local)) >= 4, 30)
    finally:
        process.kill()
        process.wait(10)
    assert until(lambda: not in_folder(local), 10), in_folder(local)
    again = subprocess.Popen(
        words, cwd=local.folder, env=local.variables, stderr=subprocess.PIPE, text=True
    )
    try:
        assert again.stderr is not None
        assert "goes on from what was saved in" in again.stderr.readline()
    finally:
        again.kill()
        again.communicate(timeout=10)
    assert until(lambda: not in_folder(local), 10), in_folder(local)


def test_nothing_is_left_of_a_killed_root_whose_run_was_deleted(local: Stage, heat: str) -> None:
    process = subprocess.Popen([heat, "1000000", "2"], cwd=local.folder, env=local.variables)
    try:
        assert until(lambda: len(in_folder(local)) >= 3, 30)
        shutil.rmtree(local.folder / "qtide-runs", ignore_errors=True)
    finally:
        process.kill()
        process.wait(10)
    assert until(lambda: not in_folder(local), 10), in_folder(local)


def test_the_aggregation_has_the_same_answer_on_all_sizes_and_by_a_qpu(
    local: Stage, compiled: Callable[[Path], str], tmp_path: Path
) -> None:
    aggregation = compiled(EXAMPLES / "aggregation.cpp")
    told = ran(local, aggregation, "2")
    assert [line[:15] for line in told.splitlines()] == ["round 1: energy", "round 2: energy"]
    assert float(told.split()[-1]) < 0
    assert ran(local, str(BIN / "mpiexec"), "-n", "2", aggregation, "2", "--static") == told
    assert by_flow(local, aggregation, "2") == told
    (tmp_path / "service").mkdir()
    with LocalService(tmp_path / "service", '[devices.dev]\nkind = "annealer"\n') as service:
        local.variables |= {"QTIDE_URL": service.url, "QTIDE_TOKEN": service.token("mia")}
        assert ran(local, aggregation, "2") == told
        lines = ran(local, compiled(PROGRAMS / "qpu.c")).splitlines()
    assert lines[:2] == ["0 0 0 0 1 -2", "1 1"]
    assert lines[2] == "-2 there is no format 'odd'; there are: qasm, qubo, ising, burst"
    assert lines[3] == "-2 line 1 of the qubo is not two variables and a weight: '0 1'"


def test_a_program_for_dmr_runs_with_another_include(
    local: Stage, compiled: Callable[[Path], str]
) -> None:
    local.variables |= {"DMR_DEFAULT_POLICY_MAX": "2"}
    program = compiled(PROGRAMS / "dmr.c")
    assert ran(local, program) == (
        "2 ranks, changed 1 times, then 1\n2 ranks, changed 2 times, then 1\n"
    )


def test_a_compiled_server_is_the_quantum_component(
    stage: SlurmStage,
    compiled: Callable[[Path], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    words = ("sbatch", "--parsable", f"--chdir={tmp_path}", "--output=out")
    script, server = str(EXAMPLES / "components.sh"), compiled(EXAMPLES / "server.c")
    job = stage.slurm(*words, script, str(EXAMPLES), server).strip()
    try:
        assert until(lambda: not stage.slurm("squeue", "--noheader", "--format=%i"), 90)
    finally:
        stage.slurm("scancel", "--quiet", job)
    told = (tmp_path / "out").read_text()
    assert len(re.findall(r"round \d: energy -\d+\.\d+; \d+ steps meanwhile", told)) == 3, told
    assert until(lambda: stage.idle() == 3)


@pytest.fixture(scope="session")
def heat_in_fortran(compilers: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Fortran example, with the bindings of Debian's MPICH over the library from PyPI.

    That has no Fortran bindings, and Debian's own library cannot join processes; all versions of
    MPICH have the same binary interface.
    """
    if shutil.which("gfortran") is None or shutil.which("mpifort.mpich") is None:
        install("there is no Fortran compiler", ["gfortran", "libmpich-dev"])
    folder = tmp_path_factory.mktemp("fortran")
    build = [sys.executable, "-m", "qtide", "mpi", "build", "--to", str(folder)]
    compilers_of_mpi = ["--cc", str(BIN / "mpicc"), "--fc", "gfortran"]
    subprocess.run([*build, *compilers_of_mpi], check=True, timeout=120, capture_output=True)
    shown = subprocess.run(["mpifort.mpich", "-show"], capture_output=True, text=True, check=True)
    modules = [word for word in shown.stdout.split() if word.startswith("-I")]
    libraries = [f"-L{folder}/lib", "-lqtide_fortran", "-lqtide", f"-L{BIN.parent}/lib", "-lmpi"]
    places = f"-Wl,-rpath,{folder}/lib:{BIN.parent}/lib,--unresolved-symbols=ignore-in-shared-libs"
    source = [str(EXAMPLES / "heat.f90"), f"-I{folder}/include", *modules]
    program = str(folder / "heat")
    words = ["gfortran", "-Wall", "-o", program, *source, *libraries, "-lmpichfort", places]
    subprocess.run(words, check=True, timeout=60)
    return program


def test_fortran_computes_the_same(local: Stage, heat_in_fortran: str) -> None:
    local.variables |= {"MPIR_CVAR_CH4_NETMOD": "ofi"}  # UCX's addresses are too long for this MPI
    assert ran(local, heat_in_fortran, "60").lower() == CHECKSUM
    assert by_flow(local, heat_in_fortran, "60", "1", "3", "2").lower() == CHECKSUM


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qtide", "mpi"]
    for words, sentence in {
        ("build", "--cc", "no-such-mpicc"): "there is no no-such-mpicc; name your MPI's compiler",
        ("run", "./no-such-program"): "./no-such-program is not a program that can be run",
    }.items():
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert sentence in done.stderr
