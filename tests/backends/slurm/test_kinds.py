"""Nodes of several kinds on a real Slurm, whose GPUs are pretended: what tasks see, and rivals."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qtide import box

PROGRAM = """
import os
import time

from qtide import classical, program, task


def where(seconds):
    time.sleep(seconds)
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return os.environ["SLURMD_NODENAME"], shown, len(os.sched_getaffinity(0)), os.getpid()


@program
async def both():
    cpu = await classical(*(task(where, 0.2).needs(cores=1) for _ in range(4)))
    gpu = await classical(*(task(where, 0.5) for _ in range(4))).needs(2, 1, kind="gpu")
    return {"cpu": cpu, "gpu": gpu}
"""
PARTS = """
import os
import time

from qtide import classical, program, task


def where():
    time.sleep(0.3)
    return [os.environ[f"SLURM{each}"] for each in ("D_NODENAME", "_JOB_ID", "_CPUS_ON_NODE")]


@program(needs="cores=2,gpus=1")
async def parts():
    return await classical(*(task(where) for _ in range(3)))
"""
KINDS = ["--kind", "cpu:partition=compute", "--kind", "gpu:partition=gpu"]


def test_two_drivers_with_tasks_on_parts_of_nodes_of_two_kinds(empty: Path, tmp_path: Path) -> None:
    there = box.up(empty / "box", nodes=2, kinds=["gpu:1,cores=8,gpus=4,memory=2GB"])
    environment = os.environ | box.env(there.folder)
    (tmp_path / "both.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "qtide", "run", "both.py", "--cluster", "slurm", "--json"]
    rivals = [
        subprocess.Popen(
            [*command, *KINDS, "--name", f"run-{number}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for rival in rivals:
        said, _ = rival.communicate(timeout=120)
        assert rival.returncode == 0
        _check(json.loads(said)["value"])
    _parts(tmp_path, environment)
    left = subprocess.run(
        ["squeue", "--noheader"], env=environment, capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


def _parts(place: Path, environment: dict[str, str]) -> None:
    """Two drivers share one node: each asks for a quarter of it at a time."""
    (place / "parts.py").write_text(PARTS)
    command = [sys.executable, "-m", "qtide", "run", "parts.py", "--cluster", "slurm:gpu"]
    terms = ["--share-nodes", "cores=2,gpus=1,memory=100MB", "--json"]
    rivals = [
        subprocess.Popen(
            [*command, *terms, "--name", f"part-{number}"],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for rival in rivals:
        said, _ = rival.communicate(timeout=120)
        assert rival.returncode == 0
        found = json.loads(said)
        assert {node for node, *_ in found["value"]} == {"gpu1"}
        assert {cpus for *_, cpus in found["value"]} == {"2"}
        assert len({job for _, job, _ in found["value"]}) > 1, "each part is a companion"
        held = found["metrics"]
        assert held["cores_held"] == pytest.approx(2 * held["nodes_held"])


def _check(found: dict[str, Any]) -> None:
    assert {node for node, *_ in found["cpu"]} <= {"c1", "c2"}
    assert {shown for _, shown, *_ in found["cpu"]} == {""}
    assert [node for node, *_ in found["gpu"]] == ["gpu1"] * 4
    assert sorted(shown for _, shown, *_ in found["gpu"]) == ["0", "1", "2", "3"]
    assert len({pid for *_, pid in found["gpu"]}) == 4, "all four ran at once"
    cores = len(os.sched_getaffinity(0))
    assert {number for _, _, number, _ in found["gpu"]} == {min(2, cores)}
