from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest

from qtide.backends.models.failures import Failures, Window
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import read_site
from qtide.core.errors import UsageError

FULL = """
nodes = 64
scheduler = "easy"
limit = 7200

[delays]
grant = 3.5
cold = 2

[[losses]]
at = 100
node = "n1"
back = 50

[qpu]
number = 2
offload = 3.6
spread = "lognormal"
windows = [{ at = 1000, lasts = 100, every = 86400 }]

[power]
node_busy = 600

[background.generate]
jobs = 100
"""

PARTITIONS = """
scheduler = "easy"

[[partitions]]
name = "cpu"
nodes = 16
background.trace = "cpu.swf"

[[partitions]]
name = "gpu"
nodes = 4
scheduler = "fifo"
"""


def test_a_file_describes_a_whole_site(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(FULL)
    site = read_site(file)
    assert (site.nodes, site.delays.grant, site.losses[0].back) == (64, 3.5, 50)
    assert site.is_batch and site.qpu.windows[0].every == 86_400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nods = 3", "nods"),
        ("nodes = 0", "nodes: input should be greater than or equal to 1"),
        ("[delays]\ngrant = -1", "delays.grant"),
        ("nodes =", "not valid TOML"),
        ("[delays]\ngrant = inf", "delays.grant: input should be a finite number"),
        ("[qpu]\nlicences = 0", "qpu.licences: input should be greater than or equal to 1"),
        ("[qpu]\nspeed = 2", "qpu.speed: there is no such key"),
        (
            "[qpu]\nwindows = [{ at = 0, lasts = 9, every = 5 }]",
            "qpu.windows.0: a window has to last less than the time from one to the next",
        ),
        ("[service]\npromised = 1", "service.promised: input should be less than 1"),
        ("[failures]\nback = 5", "failures.every: field required"),
        ("[failures]\nevery = 0", "failures.every: input should be greater than 0"),
        ("[[losses]]\nat = 5\nnode = 'n7'", "no node 'n7'; they are n1 to n3"),
        ("[[partitions]]\nname = 'a'", "partitions.0.nodes: field required"),
        (2 * "[[partitions]]\nname = 'a'\nnodes = 4\n", "2 of them are called 'a'"),
        ("nodes = 5\n[[partitions]]\nname = 'a'\nnodes = 4\n", "nodes: each of the partitions"),
        ("[[partitions]]\nname = 'a'\nnodes = 4\nhybrid = 0", "no hybrid job comes to any"),
        ("[hybrid]\nnodes = 4", "a job of 4 nodes does not fit on 3"),
        ("[hybrid]\nshare = 0.5", "no background jobs to take it from"),
        ("[hybrid]\ntable = { 2 = 5 }", "how long one node takes"),
        ("[service]\nlimit = 60\n[hybrid]", "120 s are more than the service's limit of 60 s"),
        ("[background]\ntrace = 'x'\ngenerate = {}", "a trace or generated, not both"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_site(file)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text("nodes = 4", encoding="utf-16")
    with pytest.raises(UsageError, match=r"site.toml is not valid TOML: 'utf-8' codec"):
        read_site(file)


def test_each_partition_is_a_site_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(PARTITIONS)
    site = read_site(file)
    assert (site.all_nodes, site.part("").nodes, site.part("gpu").nodes) == (20, 16, 4)
    assert (site.part("gpu").scheduler, site.part("cpu").scheduler) == ("fifo", "easy")
    assert site.part("cpu").background.trace == str(tmp_path / "cpu.swf")
    with pytest.raises(UsageError, match="no partition 'tpu'; it has: cpu, gpu"):
        site.part("tpu")


def test_the_files_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "twin.md"
    blocks = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    for number, block in enumerate(blocks):
        file = tmp_path / f"site-{number}.toml"
        file.write_text(block)
        assert read_site(file).all_nodes in (64, 56, 48, 20)


def test_failures_come_at_their_rate_and_by_their_seed() -> None:
    failures = Failures(every=1000, back=50, seed=3)
    nodes = ["n1", "n2", "n3", "n4"]
    found = list(islice(failures.losses(nodes), 4000))
    assert found[-1].at == pytest.approx(1_000_000, rel=0.1)
    assert sum(loss.back or 0 for loss in found) / 4000 == pytest.approx(50, rel=0.1)
    assert {loss.node for loss in found} == set(nodes)
    assert found[:9] == list(islice(failures.losses(nodes), 9))


def test_a_window_delays_what_would_start_within() -> None:
    qpu = QpuModel(windows=(Window(10, 5, 100), Window(15, 2)))
    assert [qpu.back(now) for now in (9.0, 10.0, 16.0, 17.0, 112.0)] == [9, 17, 17, 17, 115]
