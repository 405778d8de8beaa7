"""What operators deploy: read by the programs that will read it, where they are installed."""

from __future__ import annotations

import json
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from qtide.core.sandbox import ALLOWED
from qtide.service.monitoring import ServiceMetrics
from tests.backends.slurm.fixtures import install

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus/qtide.rules.yml"
PAGE = DEPLOY.parent / "docs/deployment.md"
SCRIPTS = ["environment.sh", "install.sh", "debian/build.sh", "debian/postinst", "debian/prerm"]
NAME = re.compile(r"\bqtide_[a-z_]+\b")


def known_metrics() -> set[str]:
    """The names of all series that the service can have."""
    ends = ("", "_total", "_bucket", "_count", "_sum")
    help_lines = re.findall(rb"# HELP (\S+)", ServiceMetrics().text())
    return {name.decode().removesuffix("_total") + end for name in help_lines for end in ends}


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana/qtide.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = set(NAME.findall(RULES.read_text())) | {n for each in shown for n in NAME.findall(each)}
    assert len(shown) >= 9
    assert used - known_metrics() == set()


def test_every_alert_has_its_paragraph() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    links = re.findall(r"runbook_url: docs/deployment.md#(\w+)", RULES.read_text())
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert alerts == headings
    assert links == [name.lower() for name in alerts]


def test_prometheus_accepts_the_alerts_and_they_fire() -> None:
    if shutil.which("promtool") is None:
        install("the alerts are checked by promtool, which is missing", ["prometheus"])
    for words in (["check", "rules", RULES.name], ["test", "rules", "qtide.rules.test.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_recipe_makes_an_environment_with_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its own functions, in place of Spack's; the environment itself takes a minute to make."""
    called: list[tuple[str, ...]] = []

    def executable(script: str) -> Callable[..., None]:
        assert os.access(DEPLOY.parent / script, os.X_OK)
        return lambda *words: called.append(words)

    spack = ModuleType("spack.package")
    for name in ("depends_on", "license", "variant", "version"):
        setattr(spack, name, lambda *_, **__: None)
    vars(spack).update(Executable=executable, Package=object)
    monkeypatch.setitem(sys.modules, "spack", ModuleType("spack"))
    monkeypatch.setitem(sys.modules, "spack.package", spack)
    found = runpy.run_path(str(DEPLOY / "spack/packages/qtide/package.py"))
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert set(found["EXTRAS"]) <= set(project["optional-dependencies"])

    class Spec(set[str]):
        def __getitem__(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(command=SimpleNamespace(path=f"/spack/{name}"))

    for asked, words in (({"+serve", "+gate"}, "gate,serve"), (set(), "")):
        found["Qtide"]().install(Spec(asked), "/prefix")
        assert called.pop() == ("/prefix", "/spack/python", words)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_valid_shell(name: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-n", DEPLOY / name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_unit_lets_readers_of_payloads_confine_themselves() -> None:
    """A call that the unit refuses would leave them unconfined, without a word."""
    if shutil.which("systemd-analyze") is None:
        install("the units are checked by systemd-analyze, which is missing", ["systemd"])
    unit = (DEPLOY.parent / "docs/examples/qtide.service").read_text()
    waiting = " ".join(re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE)).split()
    allowed: set[str] = set()
    while waiting:
        allowed.add(name := waiting.pop())
        if name.startswith("@"):
            words = ["systemd-analyze", "syscall-filter", name]
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            lines = (each.strip() for each in said.splitlines()[1:])
            waiting += [each for each in lines if each and not each.startswith("#")]
    landlock = {f"landlock_{name}" for name in ("create_ruleset", "add_rule", "restrict_self")}
    assert {"prctl", *landlock, *ALLOWED[platform.machine()]} - allowed == set()


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        install("the units are checked by systemd-analyze, which is missing", ["systemd"])
    for name in ("qtide.service", "qtide.socket"):
        text = (DEPLOY.parent / "docs/examples" / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/qtide/bin/qtide", "/bin/true"))
    words = ["systemd-analyze", "verify", "--man=no", "qtide.service", "qtide.socket"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.further
def test_rpm_and_ansible_accept_what_is_for_them() -> None:
    """Their checkers come with a hundred packages, so this is not in every test run."""
    if shutil.which("rpmlint") is None or shutil.which("ansible-lint") is None:
        install("rpmlint and ansible-lint are missing", ["rpm", "rpmlint", "ansible-lint"])
    done = subprocess.run(
        ["rpmlint", DEPLOY / "rpm/qtide.spec"], capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if ": E: " in line]
    # where systemd's macros are missing, as on Debian, the folders are named
    assert all("hardcoded-library-path" in line for line in found), done.stdout
    folder = DEPLOY / "ansible"
    words = ["ansible-lint", "--offline", "qtide.yml"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """As far as its schema tells: Debian has no Grafana that could load it."""
    board = json.loads((DEPLOY / "grafana/qtide.json").read_text())
    assert board.get("id") is None and board["title"] and board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    sources = {each["name"] for each in board["templating"]["list"] if each["type"] == "datasource"}
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] in {"timeseries", "stat", "table", "state-timeline", "bargauge"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        used = {panel["datasource"]["uid"]} | {t["datasource"]["uid"] for t in panel["targets"]}
        assert used <= {f"${{{name}}}" for name in sources}
