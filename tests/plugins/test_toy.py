"""A package that brings one plug-in of each kind is installed and used, without any change here."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from qtide.service.local_service import LocalService

TOY = Path(__file__).with_name("toy")
LIMIT = 120.0
DEVICES = """
[devices.riddles]
kind = "toy"
answer = "a towel"
policy = "toy"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The toy as pip would install it, in a folder that only these tests look into."""
    folder = tmp_path_factory.mktemp("site")
    words = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", folder)
    subprocess.run([sys.executable, "-m", "uv", *words, TOY], check=True, timeout=LIMIT)
    return str(folder)


def qtide(installed: str, *words: str, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "qtide", *words],
        env=os.environ | {"PYTHONPATH": installed},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_cluster_adviser_strategy_device_and_application_are_used(
    installed: str, tmp_path: Path
) -> None:
    chosen = ("--cluster", "toy", "--strategy", "playful", "--qpu", "toy:photonic,answer=fish")
    said = qtide(installed, "run", "toy", "21", *chosen, "--colour", "blue", "--json", cwd=tmp_path)
    run = json.loads(said)
    assert run["value"] == [42, 84]
    assert '"strategy": "toy"' in (tmp_path / run["folder"] / "run.json").read_text()
    ledger = (tmp_path / run["folder"] / "ledger.jsonl").read_text()
    assert "node/blue1" in ledger and "node/blue2" in ledger and "qpu/toy" in ledger


def test_the_help_shows_what_was_added(installed: str, tmp_path: Path) -> None:
    said = qtide(installed, "run", "--cluster", "toy", "--strategy", "toy", "--help", cwd=tmp_path)
    said = " ".join(said.split())  # wherever its lines break
    assert "--colour" in said and "Two toy nodes" in said
    assert "static, toy, workflow" in said and "clustering, colouring, synthetic, toy" in said


def test_errors_list_what_was_added(installed: str, tmp_path: Path) -> None:
    said = qtide(installed, "run", "toy", "--cluster", "cloud", cwd=tmp_path, code=2)
    assert "there is no cluster 'cloud'; there are: local, simulated, slurm, toy" in said
    said = qtide(installed, "run", "nothing", cwd=tmp_path, code=2)
    assert "toy" in said and "clustering" in said


def test_device_format_policy_and_api_are_served(
    installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", installed)
    with LocalService(tmp_path, DEVICES) as service:
        script = (
            "import toy\n"
            "from qtide.backends.client.client import Client, ServiceFailed\n"
            "print(Client().run(toy.Riddle('six by nine?'), 'riddles', shots=2))\n"
            "try: Client().submit(toy.Riddle(''), 'riddles')\n"
            "except ServiceFailed as error: print(error)"
        )
        env = os.environ | {"QTIDE_URL": service.url, "QTIDE_TOKEN": service.token()}
        words = [sys.executable, "-c", script]
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=LIMIT, check=True
        )
        answer, refusal = done.stdout.splitlines()
        assert answer == "['a towel', 'a towel']"
        assert refusal.startswith("the payload cannot be checked: IndexError")
        with urllib.request.urlopen(f"{service.url}/toy/hello", timeout=10) as hello:
            assert json.load(hello) == {"hello": ["riddles"]}
        (device,) = service.operator().devices()
        assert (device["kind"], device["policy"]) == ("toy", "toy")
