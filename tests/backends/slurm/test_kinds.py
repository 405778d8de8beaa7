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

from qtide import classical, program, task, together


def where(seconds):
    time.sleep(seconds)
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return os.environ["SLURMD_NODENAME"], shown, len(os.sched_getaffinity(0)), os.getpid()


def greedy():
    return len(bytearray(10**9))


async def refused():
    try:
        await task(greedy).needs(memory="100 MB", kind="gpu")
    except MemoryError:
        return True


@program
async def both():
    cpu = await classical(*(task(where, 0.2).needs(cores=1) for _ in range(4)))
    four = classical(*(task(where, 0.5) for _ in range(4))).needs(2, 1, kind="gpu")
    gpu, refusal = await together(four, refused())
    return {"cpu": cpu, "gpu": gpu, "refused": refusal}
"""
PARTS = """
import os
import time

from qtide import classical, program, task


def where():
    time.sleep(1.0)
    names = ("SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_CPUS_ON_NODE", "CUDA_VISIBLE_DEVICES")
    return [os.environ[name] for name in names]


@program(needs="cores=2,gpus=1")
async def parts():
    return await classical(*(task(where) for _ in range(2)))
"""
KINDS = ["--kind", "cpu:partition=compute", "--kind", "gpu:partition=gpu"]


def rivals(place: Path, environment: dict[str, str], *words: str) -> list[dict[str, Any]]:
    """What two runs of a program report that run at the same time, each with its own driver."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "qtide", "run", *words, "--json", "--name", f"run-{number}"],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    said = [each.communicate(timeout=120)[0] for each in started]
    assert [each.returncode for each in started] == [0, 0]
    return [json.loads(each) for each in said]


def test_two_drivers_with_tasks_on_parts_of_nodes_of_two_kinds(empty: Path, tmp_path: Path) -> None:
    there = box.up(empty, nodes=2, kinds=["gpu:1,cores=8,gpus=4,memory=2GB"])
    environment = os.environ | box.env(there.folder)
    (tmp_path / "both.py").write_text(PROGRAM)
    for found in rivals(tmp_path, environment, "both.py", "--cluster", "slurm", *KINDS):
        _check(found["value"])
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "parts.py").write_text(PARTS)
    words = ("parts.py", "--cluster", "slurm:gpu", "--share-nodes", "cores=2,gpus=1,memory=100MB")
    for found in rivals(folder, environment, *words):
        assert {(node, cpus) for node, _, cpus, _ in found["value"]} == {("gpu1", "2")}
        assert {gpu for *_, gpu in found["value"]} <= set("0123")
        held = found["metrics"]
        assert held["cores_held"] == pytest.approx(2 * held["nodes_held"])
    static = [sys.executable, "-m", "qtide", "run", *words, "--strategy", "static"]
    refused = subprocess.run(
        static, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "asks for 4 parts of nodes at once" in refused.stderr
    left = subprocess.run(
        ["squeue", "--noheader"], env=environment, capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


def _check(found: dict[str, Any]) -> None:
    assert found["refused"]
    assert {node for node, *_ in found["cpu"]} <= {"c1", "c2"}
    assert {shown for _, shown, *_ in found["cpu"]} == {""}
    assert [node for node, *_ in found["gpu"]] == ["gpu1"] * 4
    assert sorted(shown for _, shown, *_ in found["gpu"]) == ["0", "1", "2", "3"]
    assert len({pid for *_, pid in found["gpu"]}) == 4, "all four ran at once"
    cores = len(os.sched_getaffinity(0))
    assert {number for _, _, number, _ in found["gpu"]} == {min(2, cores)}
