from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qtide.backends.clusters.slurm.deployment import announce, deploy
from qtide.backends.clusters.slurm.prolog import PrologSettings
from qtide.core.errors import UsageError
from qtide.interfaces.cli.box import box as commands
from qtide.interfaces.cli.main import application
from tests.service.admission.site import Site


def test_what_is_announced_is_read(tmp_path: Path) -> None:
    program = deploy(tmp_path / "qtide")
    assert program.stat().st_mode & 0o777 == 0o755
    for url in ("https://qpu.example:8443/site", "http://[::1]:80"):
        announce(program.parent, url, ca="/etc/ca.pem", munge_socket="/run/own")
        found = PrologSettings.read(program.parent / "service.conf")
        assert (found.url, found.ca, found.munge_socket) == (url, "/etc/ca.pem", "/run/own")
    assert {each.name for each in program.parent.iterdir()} == {
        "prolog.py",
        "prolog.sh",
        "job_submit.lua",
        "service.conf",
    }


@pytest.mark.parametrize(
    ("url", "ca"),
    [
        ("ftp://x", ""),
        ("http://", ""),
        ("https://x;reboot", ""),
        ("https://x", "a b"),
        ("http://qpu.example", ""),
    ],
)
def test_what_a_shell_would_misread_is_not_written(tmp_path: Path, url: str, ca: str) -> None:
    with pytest.raises(UsageError):
        announce(deploy(tmp_path).parent, url, ca=ca)
    assert not (tmp_path / "service.conf").exists()


def test_what_an_operator_has_added_stays(tmp_path: Path) -> None:
    file = deploy(tmp_path).with_name("service.conf")
    file.write_text('# ours\nslots="qpu gpu"\nurl=http://old\nbundle=/etc/all.pem\n')
    announce(tmp_path, "https://new")
    found = PrologSettings.read(file)
    assert (found.url, found.bundle) == ("https://new", "/etc/all.pem")
    assert 'slots="qpu gpu"' in file.read_text() and "# ours" in file.read_text()


def test_an_operator_is_told_what_to_write(tmp_path: Path) -> None:
    place = tmp_path / "qtide"
    words = ["prolog", str(place), "--service", "https://qpu.example", "--ca", "/etc/ca.pem"]
    told = CliRunner().invoke(application(), words)
    assert told.exit_code == 0 and f"TaskProlog={place}/prolog.sh\n" in told.output
    found = PrologSettings.read(place / "service.conf")
    assert (found.url, found.ca) == ("https://qpu.example", "/etc/ca.pem")
    assert "there is no file /etc/ca.pem here" in told.stderr
    asked = [str(place / "prolog.sh"), "4711;"]
    wrong = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "qtide: '4711;' is no job's number, such as 4711\n"


def test_a_box_that_is_up_can_be_told_of_a_service(site: Site) -> None:
    place = site.conf.parent / "service.conf"
    words = ["up", "--folder", str(site.folder), "--nodes", "1", "--qpus", "2"]
    place.unlink(missing_ok=True)
    assert CliRunner().invoke(commands, words).exit_code == 0
    assert not place.exists()
    told = CliRunner().invoke(commands, [*words, "--service", "http://127.0.0.1:8080"])
    assert told.exit_code == 0, told.output
    found = PrologSettings.read(place)
    assert (found.url, found.munge_socket) == ("http://127.0.0.1:8080", str(site.munge_socket))
    place.unlink(missing_ok=True)
