"""The demonstration as a whole, on few points and with a fast clock."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from qtide.core.errors import QtideError
from qtide.experiments import demo
from qtide.service.local_service import LocalService
from tests.backends.slurm.stage import until
from tests.interfaces.cli.inside import called

FEW = ["--blobs", "300", "--configuration", "published", "--threshold", "0.99", "--most", "1"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> list[LocalService]:
    """A demonstration of seconds; the services that it starts."""
    monkeypatch.setattr(demo, "STRATEGIES", replace(demo.STRATEGIES, words=FEW, time_scale=0.001))
    monkeypatch.setattr(demo, "SHARING", replace(demo.SHARING, words=FEW))
    started: list[LocalService] = []

    class Noted(LocalService):
        def start(self, *, ready: bool = True) -> LocalService:
            started.append(self)
            return super().start(ready=ready)

    monkeypatch.setattr(demo, "LocalService", Noted)
    return started


def is_alive(service: LocalService) -> bool:
    return Path(f"/proc/{service.pid}").exists()


def test_it_ends_with_sentences_and_one_page(small: list[LocalService], tmp_path: Path) -> None:
    told = json.loads(called("demo", "--runs", tmp_path, "--json").stdout)
    assert [case["strategy"] for case in told["sharing"]] == ["exclusive", "shared"]
    assert {case["strategy"] for case in told["strategies"]} >= {"static", "elastic"}
    page = Path(told["page"]).read_text()
    assert len(told["sentences"]) == 3
    assert all(sentence in page for sentence in told["sentences"])
    assert "Strategies: two jobs" in page and "Sharing: three jobs" in page
    (service,) = small
    assert not is_alive(service)


def test_its_service_ends_with_it_even_if_it_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from qtide.service.local_service import LocalService\n"
        "made = LocalService(Path(sys.argv[1]), sys.argv[2], bound=True)\n"
        "print(made.start(ready=False).pid, flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", script, str(tmp_path), demo.DEVICE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        service = Path(f"/proc/{int(shown.stdout.readline())}")
        assert service.exists()
        shown.kill()
    assert until(lambda: not service.exists())


def test_its_service_ends_even_if_a_job_fails(
    small: list[LocalService], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = replace(demo.SHARING, words=["no-such-file.csv"])
    monkeypatch.setattr(demo, "SHARING", wrong)
    with pytest.raises(QtideError, match=r"no-such-file\.csv"):
        demo.share(tmp_path / "sharing", lambda *_: None, lambda _: None)
    (service,) = small
    assert not is_alive(service)
