"""Starting a run: check it, create its folder, and optionally launch a separate driver."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from qtide.backends.clusters.kind import CLUSTERS, ClusterKind
from qtide.core.errors import QtideError, UsageError
from qtide.core.plugins import Plugins
from qtide.programs.arguments import parse
from qtide.programs.program import load
from qtide.runs.driver import engine_of
from qtide.runs.earlier import with_precedent
from qtide.runs.folder import Call, RunFolder, created, stamp
from qtide.runs.open_site import check_site, is_service
from qtide.runs.presence import LAUNCHED_BY
from qtide.runs.spec import Spec


@dataclass(frozen=True)
class Advised:
    """A recommended strategy and the reason."""

    strategy: str
    why: str


Adviser = Callable[[Spec, Path], Advised]
"""Takes the run as requested and the folder of earlier runs."""

ADVISERS: Plugins[Adviser] = Plugins("qtide.advisers", "adviser")


def decided(spec: Spec, runs: Path) -> Spec:
    """Resolve the run's strategy; if an adviser chooses it, print which one and why."""
    if spec.strategy not in ADVISERS.names():
        return spec
    chosen = ADVISERS.load(spec.strategy)(spec, runs)
    print(f"strategy {chosen.strategy}: {chosen.why}", file=sys.stderr)  # noqa: T201 - for users
    return replace(spec, strategy=chosen.strategy)


BACKGROUND = "background"
LIMIT = 60.0
"""Seconds a background driver has to start."""


def check(spec: Spec, call: Call | None = None) -> str:
    """Check everything before anything is written; return the program's name."""
    check_site(spec)
    engine = engine_of(spec)
    if engine is not None:
        engine.check(spec)
    if call is None:
        program = load(spec.program)
        call = Call(program, *parse(program, spec.words))
    _check_device(call.program.payload, spec)
    call.prepare(seed=spec.seed, folder=Path(), target=None).close()
    return call.program.name


def _check_device(payload: str, spec: Spec) -> None:
    """Refuse a named device that does not take the program's payloads; a service is asked later."""
    if not payload or spec.qpu == Spec.qpu or is_service(spec.qpu):
        return
    from qtide.backends.client.target import Target  # loads the devices
    from qtide.backends.devices.device import choice

    chosen = choice(spec.qpu)
    Target(chosen.device.name, chosen.kind, chosen.device.properties()).check(payload)


def create(spec: Spec, runs: Path, name: str = "", call: Call | None = None) -> RunFolder:
    """Check a run and create its folder; an adviser may choose its strategy."""
    spec = decided(spec, runs)
    title = check(spec, call)
    return created(runs, name or f"{title}-{stamp()}", with_precedent(spec, runs), call)


@contextmanager
def unless_refused(run: RunFolder) -> Iterator[None]:
    """Remove the folder of a new run if cluster or QPU refuse it before it begins."""
    try:
        yield
    except QtideError:
        if run.state == "new":
            rmtree(run.path)
        raise


def check_driver(driver: str) -> None:
    """Refuse an unknown kind of driver."""
    if driver != BACKGROUND and driver not in (known := drivers()):
        raise UsageError(f"--driver is {' or '.join((BACKGROUND, *known))}, not {driver!r}")


def drivers() -> list[str]:
    """Kinds of clusters that can run a driver as a job."""
    return [name for name in CLUSTERS.names() if _launches(CLUSTERS.load(name))]


def launch(run: RunFolder, driver: str = BACKGROUND, extra: list[str] | None = None) -> str:
    """Start a run's driver as a process or a cluster job; return a description of where it is."""
    if driver == BACKGROUND:
        return _in_background(run)
    command = ["env", f"{LAUNCHED_BY}={driver}", *_command(run)]
    log = run.path / "driver.log"
    return CLUSTERS.load(driver).launch_driver(command, log, run.name, extra or [])


def _launches(kind: type[ClusterKind]) -> bool:
    return any("launch_driver" in vars(each) for each in kind.mro() if each is not ClusterKind)


def _command(run: RunFolder) -> list[str]:
    place = run.path.absolute()
    program = [sys.executable, "-m", "qtide", "resume"]
    return [*program, place.name, "--runs", str(place.parent)]


def _in_background(run: RunFolder) -> str:
    """Start a driver in its own session, so that it outlives this terminal."""
    with (run.path / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            _command(run),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    limit = time.monotonic() + LIMIT
    while run.presence.driver is None:
        if process.poll() or time.monotonic() > limit:
            said = (run.path / "driver.log").read_text().strip()
            raise QtideError(
                f"the driver of {run.name} did not start: {said or 'it gave no reason'}"
            )
        time.sleep(0.05)
    return f"process {process.pid}"
