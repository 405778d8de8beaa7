"""Slurm of a Debian release: fetched once, apart from what is installed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qtide import box
from qtide.backends.clusters.slurm.commands import CLIENTS, environment
from qtide.box import release as release_module
from qtide.box.layout import BoxLayout, BoxPlan
from qtide.box.release import RELEASES, Release
from qtide.core.errors import QtideError, UsageError
from qtide.core.files import write_json
from qtide.interfaces.cli.box import box as commands


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of releases."""
    folder = tmp_path / "cache/slurm"
    monkeypatch.setattr(release_module, "_shelf", lambda: folder)
    return folder


def complete(folder: Path) -> None:
    """Write what a fetch leaves."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin/slurmctld"
    program.write_text("#!/bin/sh\necho slurm-wlm 99.11.2\n")
    program.chmod(0o755)
    (folder / release_module.VERSION).write_text("slurm-wlm 99.11.2\n")


def test_a_release_is_fetched_once_even_if_two_want_it(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def fetch(name: str, folder: Path, tell: object) -> None:
        fetched.append(name)
        complete(folder)

    monkeypatch.setattr(release_module, "_fetch", fetch)
    both = [threading.Thread(target=Release.named, args=("forky",)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(60)
    assert fetched == ["forky"]
    found = Release.named("forky")
    assert found.version() == (99, 11) and found.program("slurmctld").startswith(str(shelf))
    assert found.accepted(None) == "slurm" and found.accepted("munge") == "munge"
    assert "cgroup.conf" in found.files() and f"{shelf}/forky/lib" in found.settings()


def test_a_fetch_that_was_interrupted_is_done_again(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shelf / "trixie/fetch").mkdir(parents=True)
    (shelf / "trixie/fetch/half").touch()
    monkeypatch.setattr(release_module, "KEYRING", Path("/nowhere/keyring.gpg"))
    with pytest.raises(box.PackagesMissing, match="debian-archive-keyring"):
        Release.named("trixie")
    assert not (shelf / "trixie/fetch/half").exists()


def test_a_mirror_that_does_not_answer_is_told(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(release_module.MIRROR, "http://127.0.0.1:9/debian")
    monkeypatch.setattr(release_module, "KEYRING", Path("/dev/null"))
    monkeypatch.setattr(Path, "is_file", lambda path: path.name == "null" or path.exists())
    with pytest.raises(QtideError, match=r"apt-get failed: .*127\.0\.0\.1"):
        Release.named("forky")
    assert not (shelf / "forky" / release_module.VERSION).exists()


def test_a_release_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(commands, ["up", "--release", "sarge", "--folder", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"--release is installed, {', '.join(RELEASES)}; not 'sarge'"


def test_munge_is_needed_by_older_releases(shelf: Path) -> None:
    complete(shelf / "bookworm")
    program = shelf / "bookworm/bin/slurmctld"
    program.write_text(program.read_text().replace("99.11", "22.05"))
    old = Release.named("bookworm")
    assert old.accepted(None) == "munge" and old.files() == {}
    with pytest.raises(UsageError, match=r"needs Slurm 25\.05 or newer: --release forky"):
        old.accepted("slurm")
    with pytest.raises(UsageError, match="munge or slurm, not 'none'"):
        old.accepted("none")


def test_whoever_knows_only_the_configuration_finds_the_commands(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.touch()
    plain = environment(conf)
    conf.with_name(CLIENTS).write_text("bin=/opt/slurm/bin\nSLURM_SACK_SOCKET=/run/x/sack.socket\n")
    for _ in range(2):  # a second time adds nothing
        found = environment(conf)
        assert found["PATH"] == f"/opt/slurm/bin:{plain['PATH']}"
        assert found["SLURM_SACK_SOCKET"] == "/run/x/sack.socket"


def test_another_box_s_commands_are_not_the_installed_ones(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(shelf / "forky")
    (tmp_path / "slurmctld").symlink_to(shelf / "forky/bin/slurmctld")
    monkeypatch.setenv("PATH", f"{shelf}/forky/bin:{tmp_path}:/usr/bin")
    assert Release().program("slurmctld") == f"{tmp_path}/slurmctld"
    BoxLayout(tmp_path / "box").write_plan(BoxPlan(1, 1, False, 60))
    assert box.env(tmp_path / "box")["PATH"] == f"{tmp_path}:/usr/bin"


def test_a_box_of_an_earlier_qtide_can_be_read(tmp_path: Path) -> None:
    entries = {"nodes": 1, "qpus": 1, "accounting": False, "slurmd_timeout": 60, "ports": [1]}
    write_json(tmp_path / "box.json", entries)
    plan = BoxLayout(tmp_path).read_plan()
    assert (plan.release, plan.auth) == ("installed", "munge")
