"""The node of a driver loses power: no process is left there that could give anything back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide.programs.journal import Journal
from tests.backends.slurm.network import Network, wired
from tests.backends.slurm.stage import Stage, until
from tests.interfaces.cli.test_commands import PROGRAMS, as_json

ROUNDS = 60
EXPECTED = [0] + [n for r in range(ROUNDS) for n in (4 * r * r, (2 * r + 1) ** 2, r)]
STATIC = ("--strategy", "static", "--nodes", 2)
RUN = ("--rounds", ROUNDS, "--name", "it", "--cluster", "slurm", *STATIC)
DRIVER = ("--driver", "slurm", "--driver-option=--nodelist=c1", "--driver-option=--no-requeue")


@pytest.fixture
def network(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setenv("SLURM_CONF", str(empty / "etc/slurm.conf"))
    with wired(empty, nodes=3) as made:
        yield made


def marks(folder: Path) -> Counter[str]:
    """How often each task has actually run."""
    file = folder / "marks"
    return Counter(file.read_text().split() if file.exists() else ())


def journaled(folder: Path) -> set[str]:
    """The tasks of the phases that count as done."""
    journal = Journal(folder / "qtide-runs/it/journal", "squares")
    keys = set(journal._records)
    journal.close()
    rounds = [r for r in range(ROUNDS) if str(2 * r + 1) in keys]
    return {str(n) for r in rounds for n in (2 * r, 2 * r + 1)}


def test_a_run_whose_drivers_node_is_lost_is_resumed_elsewhere(
    empty: Path, tmp_path: Path, network: Network
) -> None:
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job = as_json(tmp_path, "submit", f"{PROGRAMS}:squares", tmp_path, *RUN, *DRIVER)["driver"]
    assert until(lambda: len(marks(tmp_path)) >= 5)
    network.lose_power("c1")
    assert (
        len(stage.running()) == 2
    )  # the driver's job, whose loss Slurm has not noticed, and those of its nodes
    shown = as_json(tmp_path, "show", "it")
    assert shown["state"] == "interrupted"
    for part in ("is gone", job, "(Slurm's state of its job: RUNNING)", "qtide resume it"):
        assert part in shown["interruption"]
    kept, before = journaled(tmp_path), marks(tmp_path)
    assert as_json(tmp_path, "resume", "it")["value"] == EXPECTED
    assert kept
    assert all(marks(tmp_path)[number] == before[number] for number in kept)
    assert stage.running() == [int(job.removeprefix("job "))]
