"""A step of an exported workflow, as its engine starts it.

What it writes goes to the folder it is started in, and `cwl.output.json` says what that is.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from qtide.backends.clusters.local import LocalCluster, LocalOptions
from qtide.core.errors import QtideError
from qtide.core.files import read_json
from qtide.core.job import JobContext
from qtide.core.ledger import Interval, Ledger
from qtide.core.log import Log
from qtide.core.options import chosen
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.interfaces.export.parcel import StepInput, StepOutput
from qtide.programs.phase import Classical, Quantum
from qtide.runs.open_site import qpu_for
from qtide.runs.spec import Spec
from qtide.strategies.node_pool import NodePool
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment
from qtide.strategies.workflow import Workflow

QPU = "QTIDE_QPU"
"""The device for a quantum step, if where it runs says so: it counts more than the run's."""
SCRATCH = "scratch"

Perform = Callable[[StepInput, JobContext], Awaitable[Any]]


def perform_classical(parcel: StepInput, folder: Path) -> StepOutput:
    """Run a task on this node; ranks of a task for several nodes are processes of it."""
    world = RealWorld(parcel.spec.time_scale)

    async def perform(parcel: StepInput, job: JobContext) -> Any:
        phase = parcel.phase
        assert isinstance(phase, Classical)
        cluster = LocalCluster(world, phase.nodes, _limits(parcel.spec))
        pool = NodePool(world, cluster, job, phase.nodes)
        try:
            pool.join(await cluster.request(job, phase.nodes))
            return (await pool.run(phase, parcel.key))[0]
        finally:
            await pool.close()
            await cluster.close()

    return world.run(_answer(world, perform, parcel, folder))


def perform_quantum(parcels: list[StepInput], folder: Path) -> list[StepOutput]:
    """Run payloads that are asked for at the same time on the one device there is."""
    spec = _with_device(parcels[0].spec)
    world = RealWorld(spec.time_scale)

    async def all_of_them() -> list[StepOutput]:
        async with _strategy(world, spec, folder) as strategy:

            async def perform(parcel: StepInput, job: JobContext) -> Any:
                return await strategy(job).perform(parcel.phase, parcel.key)

            works = (_answer(world, perform, each, folder) for each in parcels)
            return await world.all_of(works)

    return world.run(all_of_them())


@asynccontextmanager
async def _strategy(
    world: RealWorld, spec: Spec, folder: Path
) -> AsyncIterator[Callable[[JobContext], Workflow]]:
    """A lease for each payload, on a device that is there for as long as the step."""
    cluster, qpu = LocalCluster(world, 1), qpu_for(spec, world, folder / "device.log")
    site = Site(world, cluster, qpu)
    try:
        qpu.start()
        qpu.check_admission()
        yield lambda job: Workflow(Assignment(site, job, 1))
    finally:
        await qpu.close()
        await cluster.close()


async def _answer(
    world: RealWorld, perform: Perform, parcel: StepInput, folder: Path
) -> StepOutput:
    log = Log(folder / f"{parcel.key}-{parcel.place}.log")
    ledger = Ledger(parcel.run, world.now)
    job = JobContext(parcel.run, ledger, Values(folder / SCRATCH), parcel.spec.seed, log=log)
    lane = "nodes" if isinstance(parcel.phase, Classical) else "qpu"
    ledger.enter("wait", lane, parcel.asked, world.now(), "a step of the workflow")
    try:
        outcome, failed = await perform(parcel, job), False
    except QtideError as error:
        if not _has_equivalent(parcel):
            raise
        outcome, failed = error, True
    except Exception as error:
        outcome, failed = error, True
    spans = [_placed(span, parcel.place) for span in ledger.intervals()]
    printed = log.path.read_text() if log.path.exists() else ""
    return StepOutput.to(parcel, outcome, spans, printed, failed=failed)


def _has_equivalent(parcel: StepInput) -> bool:
    """Whether the program goes on with a task if the QPU is away."""
    return isinstance(parcel.phase, Quantum) and parcel.phase.otherwise is not None


def _placed(span: Interval, place: int) -> Interval:
    """Name nodes as their site does; on this machine, tasks share it, as nodes of their own."""
    if not span.lane.startswith("node/"):
        return span
    host = os.environ.get("SLURMD_NODENAME")
    name = host or f"{socket.gethostname()}.{place + 1}"
    rank = span.lane.removeprefix("node/n")
    return span._replace(lane=f"node/{name}" if rank == "1" else f"node/{name}.{rank}")


def _limits(spec: Spec) -> LocalOptions:
    """What a node of this machine may use; a batch system sees to that itself."""
    local = spec.cluster.partition(":")[0] == "local"
    return chosen(LocalOptions, spec.options) if local else LocalOptions()


def _with_device(spec: Spec) -> Spec:
    return replace(spec, qpu=os.environ.get(QPU) or spec.qpu)


OUTPUTS = "cwl.output.json"
"""Where an engine looks for what a step gives."""


def main(words: list[str] | None = None) -> None:
    """Do one step; an error is a sentence, and ends it."""
    name, *rest = sys.argv[1:] if words is None else words
    try:
        outputs = STEPS[name](*rest)
    except QtideError as error:
        sys.stderr.write(f"qtide: {error}\n")
        sys.exit(error.exit_code)
    Path(OUTPUTS).write_text(json.dumps(_described(outputs)))


def advance(folder: str, journal: str, *answers: str) -> dict[str, Any]:
    """Play the program of a run on to its next phases."""
    from qtide.interfaces.export.advance import advance as played
    from qtide.runs.folder import RunFolder

    return played(RunFolder(Path(folder)), Path(journal), [Path(each) for each in answers], _here())


def classical(parcel: str) -> dict[str, Any]:
    """Run one task."""
    from qtide.interfaces.export.parcel import StepInput

    return {"answer": perform_classical(StepInput.read(Path(parcel)), _here()).write(_here())}


def quantum(*parcels: str) -> dict[str, Any]:
    """Run payloads."""
    from qtide.interfaces.export.parcel import StepInput

    answers = perform_quantum([StepInput.read(Path(each)) for each in parcels], _here())
    return {"answers": [each.write(_here()) for each in answers]}


def conclude(outcome: str) -> dict[str, Any]:
    """Give the result of the program, or fail as it did."""
    said = read_json(Path(outcome))
    if "error" in said:
        raise QtideError(said["error"])
    result = _here() / "result.json"
    result.write_text(json.dumps(said["value"], indent=2) + "\n")
    return {"result": result}


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "advance": advance,
    "classical": classical,
    "quantum": quantum,
    "conclude": conclude,
}


def _here() -> Path:
    return Path.cwd()


def _described(outputs: Any) -> Any:
    """Files as CWL describes them."""
    if isinstance(outputs, dict):
        return {name: _described(each) for name, each in outputs.items()}
    if isinstance(outputs, list):
        return [_described(each) for each in outputs]
    return {"class": "File", "path": str(outputs)} if isinstance(outputs, Path) else outputs


if __name__ == "__main__":
    main()
