"""A step of an exported workflow; its engine starts it by `python -m … NAME FILE…`.

A step writes to its working directory and lists its files in `cwl.output.json`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qtide.backends.clusters.kind import cluster_kind
from qtide.backends.clusters.local import LocalCluster, LocalOptions
from qtide.core.errors import QtideError
from qtide.core.files import read_json
from qtide.core.job import JobContext
from qtide.core.ledger import Interval, Ledger
from qtide.core.log import Log
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.interfaces.export.step_files import CarriedFiles, StepInput, StepOutput
from qtide.programs.phase import Classical, Quantum
from qtide.runs.open_site import qpu_for
from qtide.runs.spec import Spec
from qtide.strategies.node_pool import NodePool
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment
from qtide.strategies.workflow import Workflow

OUTPUTS = "cwl.output.json"
"""File in which an engine looks for a step's outputs."""
QPU = "QTIDE_QPU"
"""Variable that names the device at the place of a quantum step; overrides the run's device."""


def main(words: list[str] | None = None) -> None:
    """Run one step; report an error as one sentence and exit."""
    name, *files = sys.argv[1:] if words is None else words
    try:
        outputs = STEPS[name](*files)
    except QtideError as error:
        sys.stderr.write(f"qtide: {error}\n")
        sys.exit(error.exit_code)
    Path(OUTPUTS).write_text(json.dumps(_described(outputs)))


def advance(folder: str, journal: str, *answers: str) -> dict[str, Any]:
    """Replay the program of a run until it waits for its next phases."""
    # imported late: steps on nodes need neither runs nor the replay
    from qtide.interfaces.export.advance import advance as played
    from qtide.runs.folder import RunFolder

    files = [Path(each) for each in answers]
    return played(RunFolder(Path(folder)).trusted(), Path(journal), files, Path.cwd())


def classical(task: str) -> dict[str, Any]:
    """Run one task."""
    answer = perform_classical(StepInput.read(Path(task)), Path.cwd())
    return {"answer": answer.write(Path.cwd())}


def quantum(*payloads: str) -> dict[str, Any]:
    """Run payloads."""
    answers = perform_quantum([StepInput.read(Path(each)) for each in payloads], Path.cwd())
    return {"answers": [each.write(Path.cwd()) for each in answers]}


def conclude(outcome: str) -> dict[str, Any]:
    """Write the program's result, or fail as the program did."""
    ended = read_json(Path(outcome))
    if "error" in ended:
        raise QtideError(ended["error"])
    result = Path.cwd() / "result.json"
    result.write_text(json.dumps(ended["value"], indent=2) + "\n")
    return {"result": result}


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "advance": advance,
    "classical": classical,
    "quantum": quantum,
    "conclude": conclude,
}


def _described(outputs: Any) -> Any:
    """Describe files in CWL's form."""
    if isinstance(outputs, dict):
        return {name: _described(each) for name, each in outputs.items()}
    if isinstance(outputs, list):
        return [_described(each) for each in outputs]
    return {"class": "File", "path": str(outputs)} if isinstance(outputs, Path) else outputs


def perform_classical(given: StepInput, folder: Path) -> StepOutput:
    """Run a task on this node; the ranks of a multi-node task are processes on this node."""
    spec = given.spec
    world = RealWorld(spec.time_scale)

    async def perform(given: StepInput, job: JobContext) -> Any:
        phase = given.phase
        assert isinstance(phase, Classical)
        cluster = LocalCluster(world, phase.nodes, _limits(spec))
        pool = NodePool(world, cluster, job, phase.nodes)
        try:
            pool.join(await cluster.request(job, phase.nodes))
            return (await pool.run(phase, given.key))[0]
        finally:
            await pool.close()
            await cluster.close()

    return world.run(_answer(world, perform, given, folder))


def perform_quantum(given: list[StepInput], folder: Path) -> list[StepOutput]:
    """Run payloads requested at the same time, each on its own lease of the one device."""
    spec = replace(given[0].spec, qpu=os.environ.get(QPU) or given[0].spec.qpu)
    world = RealWorld(spec.time_scale)

    async def perform_all() -> list[StepOutput]:
        cluster, qpu = LocalCluster(world, 1), qpu_for(spec, world, folder / "device.log")
        site = Site(world, cluster, qpu)

        async def perform(each: StepInput, job: JobContext) -> Any:
            return await Workflow(Assignment(site, job, 1)).perform(each.phase, each.key)

        try:
            qpu.start()
            qpu.check_admission()
            return await world.all_of(_answer(world, perform, each, folder) for each in given)
        finally:
            await qpu.close()
            await cluster.close()

    return world.run(perform_all())


Perform = Callable[[StepInput, JobContext], Awaitable[Any]]


async def _answer(world: RealWorld, perform: Perform, given: StepInput, folder: Path) -> StepOutput:
    """Perform a phase; exceptions that the program can catch become part of the answer."""
    log = Log(folder / f"{given.key}-{given.place}.log")
    ledger = Ledger(given.run, world.now)
    values, spec = Values(folder / "scratch"), given.spec
    job = JobContext(given.run, ledger, values, spec.seed, log=log, commands=spec.commands)
    lane = "nodes" if isinstance(given.phase, Classical) else "qpu"
    ledger.enter("wait", lane, given.asked, world.now(), "a step of the workflow")
    try:
        outcome, failed = CarriedFiles.of(await perform(given, job)), False
    except Exception as error:
        replaced = isinstance(given.phase, Quantum) and given.phase.otherwise is not None
        if isinstance(error, QtideError) and not replaced:
            raise  # the run itself has failed
        outcome, failed = error, True
    spans = [_on_node(span, given) for span in ledger.intervals()]
    printed = log.path.read_text() if log.path.exists() else ""
    return StepOutput.to(given, outcome, spans, printed, failed=failed)


def _on_node(span: Interval, given: StepInput) -> Interval:
    """Rename a span's node to the site's name; on the engine's host, each task counts as a node."""
    if not span.lane.startswith("node/"):
        return span
    kind, _ = cluster_kind(given.spec.cluster)
    name = kind.step_node() or f"{socket.gethostname()}.{given.place + 1}"
    rank = span.lane.removeprefix("node/n")
    return span._replace(lane=f"node/{name}" if rank == "1" else f"node/{name}.{rank}")


def _limits(spec: Spec) -> LocalOptions:
    """Return a task's limits on the engine's host; a batch system sets its own."""
    kind, _ = cluster_kind(spec.cluster)
    here = kind.step_jobs(spec.setting(), "") is None
    return spec.setting().options(LocalOptions) if here else LocalOptions()


if __name__ == "__main__":
    main()
