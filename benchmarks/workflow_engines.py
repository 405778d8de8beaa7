"""How long it takes from step to step on a real Slurm: qtide's workflow strategy and its peers.

The same chain of steps, each a job of its own that starts when the one before has ended: by qtide,
by StreamFlow from a CWL workflow that has nothing else in it, with a polling interval of a second,
and by submitit. Every step notes when it began and when it ended. It takes a minute:
python benchmarks/workflow_engines.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from claims import at_least, at_most, conclude

from qtide import box, program, task
from qtide.core.errors import UsageError
from qtide.interfaces.export import streamflow
from qtide.interfaces.export.streamflow_mapping import yaml

STEPS = 8
WORK = 0.2
"""Seconds of a step."""
LIMIT = 600.0
OURS = 0.3
TIMES = 4.0

Times = tuple[float, float]

SNIPPET = f"import time; began = time.time(); time.sleep({WORK}); print([began, time.time()])"
"""The same step as a command that imports nothing else."""
TOOL = {
    "class": "CommandLineTool",
    "inputs": {"before": {"type": "File?"}},
    "outputs": {"times": {"type": "stdout"}},
    "stdout": "times.json",
}


def step(_: object = None) -> Times:
    """One step of the chain: when it began and ended."""
    began = time.time()
    time.sleep(WORK)
    return began, time.time()


@program
async def chain() -> list[Times]:
    """The steps, one after the other."""
    return [await task(step) for _ in range(STEPS)]


def by_qtide(folder: Path) -> list[Times]:
    """An allocation for each phase."""
    run = chain.run(strategy="workflow", cluster="slurm", runs=folder, nodes=1)
    return list(run.value)


def by_streamflow(
    folder: Path, words: Sequence[str] = (sys.executable, "-c", SNIPPET), nodes: int = 1
) -> list[Times]:
    """A static chain of steps, each a job of so many nodes that runs these words."""
    tool = TOOL | {"arguments": list(words)}
    source = {f"s{n}": {"before": f"s{n - 1}/times"} if n else {} for n in range(STEPS)}
    steps = {name: {"run": tool, "in": given, "out": ["times"]} for name, given in source.items()}
    outputs = {f"t{n}": {"type": "File", "outputSource": f"s{n}/times"} for n in range(STEPS)}
    workflow = {"cwlVersion": "v1.2", "class": "Workflow", "inputs": {}, "outputs": outputs}
    (folder / "chain.cwl").write_text(json.dumps(workflow | {"steps": steps}))
    (folder / "streamflow.yml").write_text(yaml(_mapping(folder, nodes)))
    started = [_streamflow(), "run", "--outdir", "results", "streamflow.yml"]
    done = subprocess.run(
        started, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise SystemExit(f"StreamFlow failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout[done.stdout.index("{\n") :])
    return [tuple(json.loads(Path(found[f"t{n}"]["path"]).read_text())) for n in range(STEPS)]


def by_submitit(folder: Path) -> list[Times]:
    """A job whose result is waited for, then the next; it asks Slurm's accounting for its state."""
    import submitit

    executor = submitit.AutoExecutor(folder, cluster="slurm")
    alone = {"exclusive": True}
    executor.update_parameters(timeout_min=5, nodes=1, slurm_additional_parameters=alone)
    return [executor.submit(step).result() for _ in range(STEPS)]


def _mapping(folder: Path, nodes: int) -> dict[str, object]:
    work = str(folder / "work")
    service = {"nodes": str(nodes), "exclusive": True, "time": "5"}
    return {
        "version": "v1.0",
        "workflows": {
            "chain": {
                "type": "cwl",
                "config": {"file": "chain.cwl"},
                "bindings": [{"step": "/", "target": {"deployment": "slurm", "service": "one"}}],
            }
        },
        "deployments": {
            "slurm": {
                "type": "slurm",
                "workdir": work,
                "config": {
                    "maxConcurrentJobs": 10,
                    "pollingInterval": 1,
                    "services": {"one": service},
                },
            }
        },
        "database": {"type": "default", "config": {"connection": str(folder / "flow.db")}},
    }


def _streamflow() -> str:
    """Installed first, if it is not."""
    try:
        return streamflow.command()
    except UsageError:
        return str(streamflow.install() / "bin" / "streamflow")


def gaps(times: list[Times]) -> list[float]:
    """Seconds from the end of each step to the beginning of the next."""
    return [after[0] - before[1] for before, after in pairwise(times)]


def main() -> None:
    """Measure all three on one box."""
    ways: dict[str, Callable[[Path], list[Times]]] = {
        "qtide, workflow": by_qtide,
        "submitit": by_submitit,
        "StreamFlow, 1 s": by_streamflow,
    }
    home, found = Path(tempfile.mkdtemp(prefix="qtide-box-")), {}
    try:
        os.environ.update(box.env(box.up(home, nodes=3, accounting=True).folder))
        print(f"{STEPS} steps, seconds from step to step{'median':>12}{'least':>8}{'most':>8}")
        for name, way in ways.items():
            with tempfile.TemporaryDirectory(prefix="qtide-chain-") as folder:
                waited = gaps(way(Path(folder)))
            found[name] = median(waited)
            row = f"{found[name]:12.2f}{min(waited):8.2f}{max(waited):8.2f}"
            print(f"{name:34}{row}", flush=True)
    finally:
        box.down(home)
    ours, peer = found["qtide, workflow"], found["StreamFlow, 1 s"]
    conclude(
        "workflow_engines",
        [
            at_most("qtide's workflow: s from step to step", ours, OURS),
            at_least("StreamFlow's, in multiples of that", peer / ours, TIMES),
            at_least("submitit's, in multiples of that", found["submitit"] / ours, 1.0),
        ],
    )


if __name__ == "__main__":
    main()
