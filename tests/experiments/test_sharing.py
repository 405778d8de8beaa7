"""The experiment as a user runs it, on a real service; and its figures from made-up jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import pytest

from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError, UsageError
from qtide.experiments.sharing import jobs
from qtide.experiments.sharing.experiment import Measuring, measure, write
from qtide.experiments.sharing.figures import lines, violins
from qtide.experiments.sharing.jobs import at_once
from qtide.experiments.sharing.replica import Replica, ReplicaRecord
from qtide.experiments.sharing.results import Measured, keep, kept, rows
from qtide.experiments.sharing.sharing_plan import Point, SharingPlan, read_plan
from tests.interfaces.cli.inside import printed, refused
from tests.service.serving import wait_until

SMALL = SharingPlan(
    replicas=(1, 2),
    alphas=(0.0, 1.0),
    repetitions=1,
    sets="sharing-bursts",
    shots=1,
    device="burst",
)
WORDS = ["--replicas", "1-2", "--alphas", "0,1", "--repetitions", "1", "--shots", "1"]
COMMAND = ["experiment", "sharing", *WORDS, "--sets", "sharing-bursts"]
Q, C, CYCLES = 0.5, 1.0, 10
PATIENCE = 600.0
"""Seconds for what takes ten on a quiet machine."""


def made_up(point: Point) -> Measured:
    """Jobs that end one after the other, in the time that the closed loop expects."""
    n = point.replicas
    last = (n - 1) * Q + CYCLES * (Q + C) if n <= 3 else n * CYCLES * Q + C
    jobs = (
        ReplicaRecord(100.0, 100.0 + last - number * Q, CYCLES, CYCLES * Q, 2.0 * number, 3)
        for number in range(n)
    )
    return Measured(point, tuple(jobs))


def test_figures_of_points() -> None:
    plan = SharingPlan(replicas=(2, 6), alphas=(2.0,), repetitions=2)
    found = rows(plan, [made_up(point) for point in plan.points()])
    assert [(row.replicas, row.repetitions) for row in found] == [(1, 2), (2, 2), (6, 2)]
    one, two, six = found
    assert one.loop.cycles == CYCLES
    assert one.loop.quantum == pytest.approx(Q)
    assert one.loop.classical == pytest.approx(C)
    assert one.single == pytest.approx(15.0)
    for row in found:
        assert row.total.mean == pytest.approx(row.loop.total(row.replicas))
        assert row.occupancy.mean == pytest.approx(row.loop.occupancy(row.replicas))
        assert row.total.sd == pytest.approx(0.0)
        assert row.quantum.mean == pytest.approx(row.replicas * CYCLES * Q)
    assert two.queue.mean == pytest.approx(1.0)
    assert six.gain == pytest.approx(6 * 15.0 / 31.0)
    assert len(six.runtimes) == 12


def test_without_its_reference_an_alpha_has_no_figures() -> None:
    plan = SharingPlan(replicas=(2,), alphas=(0.0, 2.0), repetitions=1)
    done = [made_up(point) for point in plan.points() if point.alpha == 2.0]
    assert {row.alpha for row in rows(plan, done)} == {2.0}
    assert rows(plan, done[1:]) == []


def test_points_survive_on_disk(tmp_path: Path) -> None:
    measured = made_up(Point(2.0, 3, 1))
    assert kept(tmp_path, measured.point) is None
    keep(tmp_path, measured)
    assert kept(tmp_path, measured.point) == measured


def test_repetitions_come_one_after_the_other_and_one_replica_is_always_measured() -> None:
    points = SharingPlan(replicas=(4, 2), alphas=(0.0, 8.0), repetitions=2).points()
    assert len(points) == len(set(points)) == 12
    assert [point.repetition for point in points] == sorted(point.repetition for point in points)
    assert {point.replicas for point in points} == {1, 2, 4}


def test_one_busy_moment_of_the_reference_decides_no_gain() -> None:
    """A job alone takes seconds: whatever slows one of its measurements must not count."""
    plan = SharingPlan(replicas=(1, 6), alphas=(0.0, 2.0), repetitions=1, references=3)
    points = plan.points()
    assert [(p.alpha, p.replicas) for p in points[:4]] == [(0.0, 1), (2.0, 1), (0.0, 6), (2.0, 6)]
    assert sorted(points[4:]) == [Point(a, 1, n) for a in (0.0, 2.0) for n in (2, 3)]
    measured = [made_up(point) for point in points]
    (slow,) = measured[0].jobs
    measured[0] = Measured(points[0], (replace(slow, end=slow.end + 100),))
    found = rows(plan, measured)
    assert found[1].gain == found[3].gain == pytest.approx(6 * 15.0 / 31.0)
    assert found[0].loop == found[2].loop
    assert len(found[0].total.values) == 3 and found[0].total.mean > 40


def test_a_plan_is_kept_and_another_one_refused(tmp_path: Path) -> None:
    SMALL.keep(tmp_path)
    file = tmp_path / "plan.json"
    told = json.loads(file.read_text())
    del told["references"]
    file.write_text(json.dumps(told))
    SMALL.keep(tmp_path)  # what an older plan does not name is as usual
    assert read_plan(tmp_path) == SMALL
    with pytest.raises(UsageError, match=r"other options \(repetitions\)"):
        SharingPlan(**vars(SMALL) | {"repetitions": 2}).keep(tmp_path)


class Page(HTMLParser):
    """Counts elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_the_page_has_the_figures_and_a_row_per_point(tmp_path: Path) -> None:
    plan = SharingPlan(replicas=(1, 2, 6), alphas=(0.0, 2.0), repetitions=2)
    found = rows(plan, [made_up(point) for point in plan.points()])
    described = write(plan, tmp_path, found)
    tags = Page((tmp_path / "report.html").read_text()).tags
    assert tags.count("svg") == 3
    assert tags.count("tr") == 1 + len(found)
    assert json.loads((tmp_path / "results.json").read_text()) == described
    for name in ("lines", "totals", "runtimes"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_axes_begin_at_zero_and_few_points_are_no_distribution() -> None:
    plan = SharingPlan(replicas=(1, 2, 6), alphas=(0.0,), repetitions=1)
    found = rows(plan, [made_up(point) for point in plan.points()])
    assert [axis.get_ylim()[0] for axis in lines(found).axes] == [0, 0, 0]
    spread = [
        replace(row, runtimes=tuple(range(1, 1 + n)))
        for row, n in zip(found, (1, 2, 6), strict=True)
    ]
    assert len(violins(spread[:2]).axes[0].collections) == 0
    assert len(violins(spread).axes[0].collections) == 1


def test_a_failure_of_one_replica_is_raised_at_once() -> None:
    def fails() -> int:
        raise UsageError("no")

    assert at_once([lambda: 1, lambda: 2]) == [1, 2]
    with pytest.raises(UsageError, match="no"):
        at_once([lambda: 1, fails])


def test_a_job_that_fails_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "log-0").write_text("loading\nno service is known\n")
    with pytest.raises(QtideError, match="not done after 0 s: no service is known"):
        jobs._await(lambda: False, 0.0, tmp_path)
    (tmp_path / "failed-0").touch()
    with pytest.raises(QtideError, match="a job failed: no service is known"):
        jobs._await(lambda: False, 3600.0, tmp_path)


def test_a_replica_is_driven_as_any_other_program(tmp_path: Path) -> None:
    class Finished:
        response: ClassVar = {"qpu_seconds": 0.01, "started": 5.0, "submitted": 2.0}

        def result(self, limit: float) -> int:
            return 0

    class Service:
        seeds: ClassVar[list[int]] = []

        def submit(self, payload: Burst, device: str, *, seed: int, **_: object) -> Finished:
            self.seeds.append(seed)
            return Finished()

    client: Any = Service()
    record = Replica(client, SMALL, 0.5, tmp_path).run()
    assert record.tasks > 1 and client.seeds == list(range(record.tasks))
    assert record.quantum == pytest.approx(0.01 * record.tasks)
    assert record.queue == 3.0 * record.tasks and record.colours > 1
    assert record.runtime >= 0.5 * record.quantum
    assert json.loads((tmp_path / "colouring.json").read_text())["colours"] == record.colours


def test_it_measures_on_a_real_service_and_continues_where_it_was(tmp_path: Path) -> None:
    told: list[Measuring] = []
    first = measure(SMALL, tmp_path, told.append)
    assert [each.number for each in told] == [1, 2, 3, 4]
    assert told[0].left is None and all(each.left is not None for each in told[1:])
    assert [(row.alpha, row.replicas) for row in first] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    for row in first:
        assert 0 < row.occupancy.mean < 1
        assert row.quantum.mean >= row.replicas * row.loop.cycles * 0.015
    (tmp_path / "points" / f"{Point(1.0, 2, 1).name}.json").unlink()
    again = measure(SMALL, tmp_path, told.append)
    assert [each.number for each in told[4:]] == [4]
    assert again[:3] == first[:3]
    assert again[3] != first[3]
    assert measure(SMALL, tmp_path, told.append) == again
    assert len(told) == 5


def test_the_command(tmp_path: Path) -> None:
    SMALL.keep(tmp_path / "sharing")
    for point in SMALL.points():
        keep(tmp_path / "sharing" / "points", made_up(point))
    where = ["--runs", str(tmp_path)]
    found = json.loads(printed(*COMMAND, *where, "--json"))
    assert [row["replicas"] for row in found["rows"]] == [1, 2, 1, 2]
    text = printed(*COMMAND, *where)
    assert "report.html" in text
    assert f"{2 * 15.0 / 15.5:.2f}×" in text
    assert "other options (shots)" in refused(*COMMAND, *where, "--shots", "7")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--replicas", "x"), "--replicas cannot be 'x'"),
        (("--replicas", "0"), "--replicas has numbers from 1 to 64"),
        (("--replicas", "1-1000"), "--replicas has numbers from 1 to 64"),
        (("--alphas", "-1"), "--alphas has numbers from 0"),
        (("--alphas", "nan"), "--alphas has numbers from 0"),
        (("--alphas", "a"), "--alphas cannot be 'a'"),
        (("--repetitions", "0"), "have to be at least 1"),
        (("--cluster", "cloud"), "--cluster is local or slurm"),
        (("--profile", "abacus"), "there is no QPU profile 'abacus'"),
        (("--sets", "magic"), "there is no way to find independent sets 'magic'"),
    ],
)
def test_bad_options_are_one_sentence(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused("experiment", "sharing", "--runs", str(tmp_path), *words)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_experiment_leaves_no_process_and_continues(tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(prefix="q-"))  # short: a socket is in it
    words = [*COMMAND, "--runs", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "qtide", *words]
    first = subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    points = tmp_path / "sharing" / "points"
    wait_until(lambda: points.is_dir() and any(points.glob("*.json")), limit=PATIENCE)
    assert services(place)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, said
    assert "repeat the command to continue" in said
    assert not services(place)
    shutil.rmtree(place)
    done = {file.name: file.read_text() for file in points.glob("*.json")}
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert len(json.loads(second.stdout)["rows"]) == 4
    assert all((points / name).read_text() == text for name, text in done.items())


def services(folder: Path) -> list[str]:
    """The command lines of services whose configuration is in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_text(errors="replace").split("\0")
        except OSError:
            continue
        if "serve" in words and any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found


def test_replicas_as_jobs_of_slurm(packages: None, tmp_path: Path) -> None:
    plan = SharingPlan(**vars(SMALL) | {"cluster": "slurm", "alphas": (0.0,)})
    one, two = measure(plan, tmp_path)
    assert (one.replicas, two.replicas) == (1, 2)
    assert one.loop.cycles == two.loop.cycles > 0
    assert two.quantum.mean > 1.5 * one.quantum.mean > 0.3
