"""The engine StreamFlow: drives a run as a workflow while qtide follows it.

Each turn of the workflow's loop leaves a note in the run's folder. qtide merges the notes into the
run's journal, ledger, log and result, as if it had run the phases itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any, cast

from qtide.backends.clusters.kind import cluster_kind
from qtide.core.errors import QtideError, UsageError
from qtide.core.ledger import Ledger
from qtide.core.processes import die_with_parent
from qtide.core.world.real import RealWorld
from qtide.interfaces.export.cwl import check_spec, journal_target, write_workflow
from qtide.interfaces.export.streamflow_mapping import mark, step_jobs
from qtide.interfaces.export.turn_note import (
    ENGINE_FOLDER,
    TurnNote,
    finish,
    merge_notes,
    result_of,
)
from qtide.programs.journal import Journal
from qtide.programs.phase import Phase
from qtide.programs.replay import ReplayStep
from qtide.runs.driver import Outcome, Tell, sentence
from qtide.runs.folder import Call, RunFolder
from qtide.runs.spec import Spec

VERSION = "0.2.0rc3"
REQUIREMENT = f"streamflow=={VERSION}"
"""The version qtide is tested with."""
NAMED = "QTIDE_STREAMFLOW"
"""Environment variable that overrides the command."""
INSTALL_LIMIT = 1200.0
"""Time limit of the installation in seconds."""
CONNECTOR = "streamflow-qtide"
PLACES = (Path(__file__).with_name(CONNECTOR), Path(__file__).parents[4] / "plugins" / CONNECTOR)
"""Locations of the connector's source: in an installed qtide, and in its repository."""
PAUSE = 0.1
"""Seconds between two checks for notes."""
ENDING = 20.0
"""Seconds StreamFlow may take to cancel its jobs when interrupted."""
STALLED = 120.0
"""Seconds without activity after which an engine counts as stuck."""


class StreamFlow:
    """The engine; it runs on this host, its steps where the mapping says."""

    @staticmethod
    def install() -> Path:
        """Install StreamFlow in its own environment."""
        return install()

    def check(self, spec: Spec) -> None:
        """Refuse runs that it cannot execute, before anything is written."""
        check_spec(spec)
        command()

    def drive(self, run: RunFolder, tell: Tell) -> Outcome:
        """Execute a run to its end."""
        world = RealWorld(run.spec.time_scale)
        return world.run(EngineDrive(run, tell, world).outcome())


@dataclass(frozen=True)
class EngineDrive:
    """Drives a run from the start of an engine to its end."""

    run: RunFolder
    tell: Tell
    world: RealWorld

    async def outcome(self) -> Outcome:
        """Drive the run to its end."""
        run = self.run
        call = run.call or Call.read(run.path, run.values, run.spec)
        with (
            closing(Journal(run.journal, call.program.name)) as journal,
            closing(Ledger(run.name, self.world.now, run.ledger)) as ledger,
        ):
            try:
                _check_folder(self._folder)
                run.unfinish()
                run.presence.arrive(run.spec.cluster.partition(":")[0])
                await journal_target(run, call, journal)
                with ledger.span("run", "driver", run.spec.strategy):
                    work = self._follow(journal, ledger)
                    ended = await run.presence.during(self.world, work, ledger.beat)
                finish(run, ended)
                return Outcome(run, result_of(ended))
            except Exception as error:
                with suppress(OSError):  # the error may be a full disk
                    run.finish({"error": sentence(error)})
                return Outcome(run, error=error)

    async def _follow(self, journal: Journal, ledger: Ledger) -> dict[str, Any]:
        """Run StreamFlow and merge the notes of its turns."""
        merge_notes(self.run, journal, ledger, lambda _: None)  # left by a killed engine
        await self._cancel_jobs()
        write_workflow(self.run, self._folder)
        process = await self._start()
        ended, active = None, time.monotonic()
        try:
            while process.returncode is None:
                ended = merge_notes(self.run, journal, ledger, self._tell) or ended
                active = time.monotonic() if _has_children(process.pid) else active
                if time.monotonic() > active + STALLED:
                    raise QtideError(f"StreamFlow has done nothing for {STALLED:g} s{self._why()}")
                await asyncio.sleep(PAUSE)
        finally:
            await _stop(process)
            await self._cancel_jobs()
        ended = merge_notes(self.run, journal, ledger, self._tell) or ended
        if ended is None:
            raise QtideError(
                f"StreamFlow ended with exit code {process.returncode} before the program did"
                f"{self._why()}"
            )
        return ended

    @property
    def _folder(self) -> Path:
        return self.run.path / ENGINE_FOLDER

    @property
    def _log(self) -> Path:
        return self._folder / "streamflow.log"

    async def _start(self) -> asyncio.subprocess.Process:
        jobs = step_jobs(self.run)
        words = [command(), "run", "--outdir", "results", "streamflow.yml"]
        with self._log.open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *words,
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if jobs is None else jobs.environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    async def _cancel_jobs(self) -> None:
        """Cancel batch jobs left by a killed engine."""
        kind, _ = cluster_kind(self.run.spec.cluster)
        await kind.cancel_steps(mark(self.run))

    def _tell(self, note: TurnNote) -> None:
        """Report progress: phases that ended before this turn and phases that begin with it."""
        ended = {each.key for each in note.steps if each.state != "begun"}
        reported = {each.key for each in note.answers if each.kept}
        began, over = note.during
        for each in note.steps:
            if each.key in reported or (each.state == "begun" and each.key in ended):
                continue
            at = over if each.state == "begun" else began
            self.tell(self.run.name, ReplayStep(each.state, each.key, cast(Phase, each)), at)

    def _why(self) -> str:
        """Return StreamFlow's first error, the place of its log, and what to do."""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [line.partition(" ERROR ")[2].strip() for line in lines if " ERROR " in line]
        first = f" ({errors[0]})" if errors else ""
        return (
            f"{first}; its log is {self._log}; finished phases are kept, so go on with: "
            f"qtide resume {self.run.name}"
        )


def _check_folder(folder: Path) -> None:
    """Refuse a folder whose path needs quoting: StreamFlow does not quote paths."""
    path = str(folder.absolute())
    if quote(path) != path:
        raise UsageError(
            f"StreamFlow cannot work in {path}, because of a space or another special character; "
            "name another folder of runs with --runs"
        )


def _has_children(pid: int) -> bool:
    """Whether StreamFlow is running a step here or querying its batch system."""
    try:
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().strip())
    except OSError:
        return True  # unknown on this system


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Interrupt it as Ctrl-C does, so that it cancels its jobs; kill it if it takes too long."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), ENDING)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # also kills its steps on this host
    await process.wait()


def command() -> str:
    """Return the command that runs StreamFlow; raise UsageError with advice if there is none."""
    named = os.environ.get(NAMED)
    if named and shutil.which(named):
        return named
    if named:
        raise UsageError(f"{NAMED} names {named}, which is no command; correct it, or unset it")
    own = environment_folder() / "bin" / "streamflow"
    found = str(own) if own.is_file() else shutil.which("streamflow")
    if found is None:
        raise UsageError("StreamFlow is not installed; run: qtide engine install streamflow")
    return found


def install() -> Path:
    """Create StreamFlow's environment with the connector, replacing an older one.

    Use uv, which takes only seconds, if it is installed; otherwise use pip.
    """
    folder, requirements = environment_folder(), [REQUIREMENT, connector()]
    python = str(folder / "bin" / "python")
    installer = [python, "-m", "pip", "install", "--quiet"]
    if find_spec("uv") is not None:
        installer = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _call(sys.executable, "-m", "venv", "--clear", str(folder))
        _call(*installer, *requirements)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _call(*words: str) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise QtideError(
            f"StreamFlow was not installed within {INSTALL_LIMIT:g} s; try again"
        ) from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise QtideError(f"StreamFlow cannot be installed: {why}; is the package index reachable?")


def environment_folder() -> Path:
    """Return the folder of StreamFlow's environment, in the user's data folder."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "qtide" / "engines" / f"streamflow-{VERSION}"


def connector() -> str:
    """Return the pip requirement of the connector for quantum locations."""
    return next((str(each) for each in PLACES if each.is_dir()), CONNECTOR)
