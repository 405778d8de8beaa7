from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qtide import box
from qtide.backends.clusters.slurm.commands import environment
from qtide.box import daemons as daemons_module
from qtide.box import release as packages_module
from qtide.box.daemons import daemons, offspring
from qtide.core.errors import QtideError, UsageError
from qtide.interfaces.cli.box import box as commands
from tests.backends.slurm.stage import Stage, until


def processes(folder: Path) -> list[int]:
    return [*daemons(folder), *offspring(folder, folder / "etc/slurm.conf")]


def start_job(folder: Path, tmp_path: Path) -> None:
    """A batch job whose task would outlive its slurmd."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    Stage(folder / "etc/slurm.conf", tmp_path).slurm("sbatch", "--output=/dev/null", str(script))
    assert until(lambda: len(offspring(folder, folder / "etc/slurm.conf")) >= 3)


def test_a_box_comes_up_with_nodes_and_qpus_and_goes_without_a_trace(
    empty: Path, tmp_path: Path
) -> None:
    there = box.up(empty, nodes=2, qpus=4)
    assert there.up and set(there.nodes) == {"c1", "c2", "q1"}
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    assert stage.slurm("sinfo", "-h", "-o", "%P %D").splitlines() == ["compute* 2", "quantum 1"]
    words = ("-p", "quantum", "--gres=qpu:4", "--licenses=qpu:4", "echo", "quantum ü")
    assert stage.slurm("srun", *words) == "quantum ü\n"
    start_job(empty, tmp_path)
    box.down(empty)
    assert not empty.exists()
    assert processes(empty) == []


def test_more_qpus_than_there_are_are_refused(conf: Path) -> None:
    done = subprocess.run(
        ["srun", "-p", "quantum", "--gres=qpu:3", "true"],
        env=environment(conf),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "node configuration" in done.stderr


def test_its_key_is_its_own_and_private(empty: Path, conf: Path) -> None:
    box.up(empty, nodes=1)
    key, other = key_of(empty), key_of(conf.parents[1])
    assert key.stat().st_mode & 0o777 == 0o400
    assert key.read_bytes() != other.read_bytes()


def key_of(folder: Path) -> Path:
    """The key by which a box's programs prove themselves."""
    (key,) = (each for each in (folder / "munge/key", folder / "etc/slurm.key") if each.exists())
    return key


def test_two_boxes_live_side_by_side(empty: Path, conf: Path, tmp_path: Path) -> None:
    box.up(empty, nodes=1)
    ports = [
        json.loads((each / "box.json").read_text())["ports"] for each in (empty, conf.parents[1])
    ]
    assert not set(ports[0]) & set(ports[1])
    box.down(empty)
    assert box.status(conf.parents[1]).up
    assert Stage(conf, tmp_path).slurm("srun", "echo", "still here") == "still here\n"


def test_up_twice_is_up_once(empty: Path) -> None:
    first, second = box.up(empty, nodes=1), box.up(empty, nodes=1)
    assert (first.plan, first.up) == (second.plan, second.up)
    with pytest.raises(
        UsageError, match="with other options; take it down: qtide box down --folder"
    ):
        box.up(empty, nodes=2)


@pytest.mark.parametrize("victims", [("slurmctld",), ("munged", "slurmctld", "slurmd")])
def test_a_box_that_died_is_put_up_again(
    empty: Path, tmp_path: Path, victims: tuple[str, ...]
) -> None:
    box.up(empty, nodes=1)
    start_job(empty, tmp_path)
    orphans = offspring(empty, empty / "etc/slurm.conf")
    for pid, name in daemons(empty).items():
        if name in victims:
            os.kill(pid, signal.SIGKILL)
    assert until(lambda: not box.status(empty).up)
    assert list((empty / "run").glob("*.pid"))
    assert box.up(empty, nodes=1).up
    assert until(lambda: not set(orphans) & set(offspring(empty, empty / "etc/slurm.conf")))
    assert Stage(empty / "etc/slurm.conf", tmp_path).slurm("squeue", "-h") == ""


def test_only_its_own_processes_are_ended(empty: Path, tmp_path: Path) -> None:
    box.up(empty, nodes=1)
    onlooker = subprocess.Popen(["tail", "-f", str(empty / "log/slurmctld.log")])
    try:
        box.down(empty)
        assert onlooker.poll() is None
    finally:
        onlooker.kill()
        onlooker.wait()


def test_a_client_that_nobody_waits_for_goes_with_its_box(empty: Path, tmp_path: Path) -> None:
    box.up(empty, nodes=1)
    conf = empty / "etc/slurm.conf"
    words = ["setsid", "--fork", "srun", "sleep", "600"]
    subprocess.run(words, env=environment(conf), check=True, stderr=subprocess.DEVNULL)
    assert until(lambda: len(Stage(conf, tmp_path).running()) == 1)
    mine = set(clients(conf))
    assert mine
    box.down(empty)
    assert until(lambda: not mine & set(clients(conf)))


def clients(conf: Path) -> list[str]:
    """The pids of all srun processes that use a box."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = ((each / "cmdline").read_bytes(), (each / "environ").read_bytes())
        except OSError:
            continue
        if words[0].startswith(b"srun\0") and os.fsencode(conf) in words[1]:
            found.append(each.name)
    return found


def test_what_is_no_box_is_left_alone(empty: Path) -> None:
    (empty / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="holds something other than a box"):
        box.up(empty)
    with pytest.raises(UsageError, match="there is no box"):
        box.down(empty)
    assert (empty / "thesis.tex").read_text() == "years of work"


def test_a_folder_that_slurm_cannot_write_down_is_refused(tmp_path: Path, packages: None) -> None:
    with pytest.raises(UsageError, match="cannot be a box's folder"):
        box.up(tmp_path / "a b")
    with pytest.raises(UsageError, match="too long"):
        box.up(tmp_path / ("x" * 90))


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(packages_module, "DAEMON_FOLDERS", ())
    with pytest.raises(box.PackagesMissing, match=r"munged, slurmctld.*make box-packages"):
        box.up(tmp_path / "box", release=box.INSTALLED)
    assert not (tmp_path / "box").exists()


def test_a_daemon_that_does_not_start_is_named(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons_module, "slurm_conf", lambda *_: "ClusterName=broken\nNonsense=1\n")
    with pytest.raises(QtideError, match=r"slurmctld of the box did not start: .*see "):
        box.up(empty, nodes=1)
    assert processes(empty) == []


def test_the_command_line_puts_up_shows_and_takes_down(empty: Path) -> None:
    def qtide(*words: str) -> str:
        result = CliRunner().invoke(commands, [*words, "--folder", str(empty)])
        assert result.exit_code == 0, result.output
        return result.output

    assert f"--folder {empty}" in qtide("up", "--nodes", "1")
    shown = json.loads(qtide("status", "--json"))
    assert shown["up"] and shown["states"] == {"c1": "idle", "q1": "idle"}
    assert f"export SLURM_CONF={empty}/etc/slurm.conf\n" in qtide("env")
    assert "is gone" in qtide("down")
    assert not empty.exists()


def test_a_box_in_a_folder_of_its_own_is_found_by_its_name(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def qtide(*words: str) -> str:
        result = CliRunner().invoke(commands, [*words, "--name", "mine"])
        assert result.exit_code == 0, result.output
        return result.output

    assert "box env --name mine" in qtide("up", "--nodes", "1", "--folder", str(empty))
    assert f"export SLURM_CONF={empty}/etc/slurm.conf\n" in qtide("env")
    elsewhere = ["up", "--name", "mine", "--folder", str(tmp_path / "other")]
    refused = CliRunner().invoke(commands, elsewhere).exception
    assert isinstance(refused, UsageError) and f"the box mine is in {empty}" in str(refused)
    qtide("down")
    assert not empty.exists() and not box.default_folder("mine").is_symlink()
