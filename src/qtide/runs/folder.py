"""A run's folder: its description, journal, ledger, values and result, each in its own file."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Literal

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import Damaged, Locked, check_own, lock, read_json, write_json
from qtide.core.ledger import Event, Interval, Note, append, left_open, notes, read, read_events
from qtide.runs.presence import Presence
from qtide.runs.spec import Spec

if TYPE_CHECKING:  # commands that only look at runs are faster without
    from qtide.core.values import Values
    from qtide.programs.program import Playing, Program

NAME = "call.json"
"""File name of a call made from Python."""
WARM_UP = "warm-up"
"""Folder name of a comparison's warm-up run."""

State = Literal["new", "running", "done", "failed", "cancelled", "interrupted"]

SHOWN = 5
"""Maximum number of names listed in an error."""


TRUST = "QTIDE_TRUST_RUNS"
"""Environment variable with which a user accepts other users' runs."""


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.call: Call | None = None
        """The run's call if it was created in this process; otherwise read it from its files."""

    @staticmethod
    def create(root: Path, name: str, spec: Spec) -> RunFolder:
        """Create a folder; if the name is taken, append a number."""
        check_name(name)
        path = None
        try:
            root.mkdir(parents=True, exist_ok=True)
            path = _make_unused(root, name)
            spec.write(path / "run.json")
        except OSError as error:
            if path is not None:
                with suppress(OSError):
                    path.rmdir()
            raise UsageError(
                f"no run can be kept in {root} ({error.strerror}); name another folder with --runs"
            ) from None
        return RunFolder(path)

    @staticmethod
    def find(root: Path, name: str) -> RunFolder:
        """Find a run by name below `root`, by path, or by a unique prefix of its name.

        `last` is the newest run.
        """
        if name == "last":
            return _newest(root)
        for path in (root / name, Path(name)):
            if (path / "run.json").is_file():
                return RunFolder(path)
        return RunFolder(root / unique(name, RunFolder.names(root), "run", f"in {root}"))

    @cached_property
    def distrust(self) -> str | None:
        """Why this user does not let the run execute code; None if they do.

        Its values are pickles, and its description names a program to import and a driver to stop:
        whoever can write them chooses what happens. Its other files are only data.
        """
        if os.environ.get(TRUST) == "1":
            return None
        advice = f"what it contains may run code; if you trust them: {TRUST}=1 qtide …"
        files = [self.path / name for name in ("run.json", NAME, "journal", "value.json")]
        values = self.path / "values"
        try:
            for each in (self.path, *files, values, *(values.iterdir() if values.is_dir() else ())):
                with suppress(FileNotFoundError):
                    check_own(each, advice)
        except (UsageError, OSError) as error:
            return str(error)
        return None

    def trusted(self) -> RunFolder:
        """Return this run; refuse it if others could have put code into it."""
        if self.distrust is not None:
            raise UsageError(self.distrust)
        return self

    @staticmethod
    def all(root: Path) -> Iterator[RunFolder]:
        """All runs below `root`, including those of comparisons."""
        for file in root.rglob("run.json"):
            yield RunFolder(file.parent)

    @staticmethod
    def names(root: Path) -> list[str]:
        """Names of all runs below `root`, as `find` accepts them, oldest first."""
        runs = sorted(RunFolder.all(root), key=lambda run: run.created)
        return [str(run.path.relative_to(root)) for run in runs]

    @cached_property
    def spec(self) -> Spec:
        """The run's description, which never changes."""
        return Spec.read(self.path / "run.json")

    @property
    def created(self) -> float:
        """Creation time in seconds since 1970; 0 if the run has been removed."""
        try:
            return (self.path / "run.json").stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @property
    def damage(self) -> str | None:
        """Why the run's description or end cannot be read; None if both can."""
        try:
            _ = self.spec, self.state
        except (Damaged, OSError) as error:
            return str(error)
        return None

    @property
    def is_warm_up(self) -> bool:
        """Whether this is a warm-up run of a comparison."""
        return self.path.parent.name == WARM_UP

    @property
    def durations(self) -> dict[str, list[str]]:
        """Tasks with durations from an earlier run ("used"), and without any ("missing").

        Missing ones took no time.
        """
        try:
            return read_json(self.path / "durations.json")
        except (FileNotFoundError, Damaged):
            return {}

    def note_durations(self, used: Iterable[str], missing: Iterable[str]) -> None:
        """Write `durations`, unless both are empty."""
        noted = {"used": sorted(used), "missing": sorted(missing)}
        if any(noted.values()):
            write_json(self.path / "durations.json", noted)

    @property
    def journal(self) -> Path:
        """The journal of finished phases."""
        return self.path / "journal"

    @property
    def finished_phases(self) -> int:
        """Number of phases in the journal: one per line, after the line with the program's name."""
        if not self.journal.is_file():
            return 0
        kept = self.journal.read_bytes()
        return max(0, kept.count(b"\n") - kept.count(b' {"key": "choice ') - 1)

    @property
    def ledger(self) -> Path:
        """The ledger of what was held and busy."""
        return self.path / "ledger.jsonl"

    @property
    def log(self) -> Path:
        """The log of what the tasks print."""
        return self.path / "agents.log"

    @property
    def values(self) -> Values:
        """The folder of large results; whoever unpacks them has to trust the run."""
        from qtide.core.values import Values

        return Values(self.trusted().path / "values")

    @property
    def presence(self) -> Presence:
        """Where the driver is, and how to cancel the run."""
        return Presence(self.path)

    @property
    def state(self) -> State:
        """The run's state."""
        if self._locked():
            return "running"
        end = self.end
        if end is not None:
            return "failed" if "error" in end else "done"
        if self.presence.cancel_requested:
            return "cancelled"
        return "interrupted" if self.journal.is_file() else "new"

    @property
    def end(self) -> dict[str, Any] | None:
        """How the run ended, as written by `finish`; None if it has not ended."""
        try:
            return read_json(self.path / "end.json")
        except FileNotFoundError:
            return None
        except Damaged as error:
            raise Damaged(f"{error}; remove it, and the run can be resumed") from None

    def finish(self, end: dict[str, Any]) -> None:
        """Write how the run ended, atomically."""
        write_json(self.path / "end.json", end)

    def keep_value(self, value: Any) -> None:
        """Store the program's return value itself, in addition to its JSON form."""
        from qtide.core.values import Unstorable

        with suppress(Unstorable):
            write_json(self._value, self.values.pack(value).as_json())

    @property
    def value(self) -> Any:
        """The program's return value; its JSON form if the value could not be stored."""
        from qtide.core.values import Packed

        try:
            return self.values.unpack(Packed.from_json(read_json(self._value)))
        except FileNotFoundError:
            return (self.end or {}).get("value")

    @property
    def _value(self) -> Path:
        return self.path / "value.json"

    def unfinish(self) -> None:
        """Delete the end written by an earlier driver."""
        (self.path / "end.json").unlink(missing_ok=True)

    def intervals(self) -> list[Interval]:
        """Intervals in the ledger; while the run is active, open spans last until now."""
        now = self._now() if self._locked() else 0.0
        return read(self.ledger, now) if self.ledger.is_file() else []

    def notes(self) -> list[Note]:
        """The strategy's decisions and their reasons."""
        return list(notes(read_events(self.ledger))) if self.ledger.is_file() else []

    def _now(self) -> float:
        """Current time on the run's clock."""
        from qtide.runs.open_site import world_for  # it loads the cluster's plug-in

        return world_for(self.spec).now()

    def _locked(self) -> bool:
        """Whether a driver holds the journal."""
        if not self.journal.is_file():
            return False
        file = os.open(self.journal, os.O_RDONLY)
        try:
            lock(file, shared=True)
        except Locked:
            return True
        finally:
            os.close(file)
        return False


def close_open_spans(run: RunFolder) -> None:
    """Close spans a dead driver left open in the ledger, if the cluster knows when they ended."""
    with suppress(OSError, QtideError, Locked):
        open_spans = _open_spans(run)
        if not open_spans or run.state == "running" or run.distrust is not None:
            return
        from qtide.backends.clusters.kind import CLUSTERS  # seldom needed

        spec = run.spec
        kind = CLUSTERS.load(spec.cluster.partition(":")[0])
        jobs = {number: int(event["label"]) for number, event in open_spans.items()}
        known = kind.ends(set(jobs.values()), run.created)
        ends = [
            {"t": max(event["t"], known[jobs[number]] / spec.time_scale), "end": number}
            for number, event in open_spans.items()
            if jobs[number] in known
        ]
        file = os.open(run.journal, os.O_RDONLY)
        try:
            lock(file)
            if ends and _open_spans(run) == open_spans:  # no other driver has taken over
                append(run.ledger, ends)
        finally:
            os.close(file)


def _open_spans(run: RunFolder) -> dict[int, Event]:
    """Open "held" spans whose label is the id of a cluster job."""
    if not run.ledger.is_file():
        return {}
    found = left_open(read_events(run.ledger))
    return {
        number: event
        for number, event in found.items()
        if event["what"] == "held" and event.get("label", "").isdecimal()
    }


def open_ended(run: RunFolder) -> str:
    """Explain why a run's figures are lower bounds; empty if they are not."""
    whats = Counter(span.what for span in run.intervals() if span.open_ended)
    if not whats:
        return ""
    if run.state == "running":
        return f"{run.name} is still running: its figures are those so far."
    spans = ", ".join(f"{number} {what}" for what, number in sorted(whats.items()))
    return (
        f"A driver of {run.name} was killed, or could not write its ledger. Spans without a known "
        f"end ({spans}) count until its last sign of life: they took at least as long."
    )


def unique(name: str, names: Iterable[str], noun: str, where: str) -> str:
    """Find the name that equals or uniquely starts with `name`; an error lists several matches."""
    found = [each for each in names if each.startswith(name)] if name else []
    if name in found or len(found) == 1:
        return name if name in found else found[0]
    if not found:
        raise UsageError(f"there is no {noun} {name!r} {where}; `qtide list` shows all")
    others = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise UsageError(
        f"{name!r} matches {len(found)} {noun}s {where}: "
        f"{', '.join(found[:SHOWN])}{others}; give more characters"
    )


def stamp() -> str:
    """Date and time for use in a name."""
    return time.strftime("%Y%m%d-%H%M%S")


def _newest(root: Path) -> RunFolder:
    """The newest run whose description can be read."""
    for run in sorted(RunFolder.all(root), key=lambda run: run.created, reverse=True):
        if run.damage is None:
            return run
    raise UsageError(f"there is no run in {root} yet")


def check_name(name: str) -> None:
    """Refuse a name that is not that of a single folder."""
    if name != Path(name).name or name == "..":
        raise UsageError(f"the name of a run is that of a folder, without any /, not {name!r}")


def _make_unused(root: Path, name: str) -> Path:
    """Create a folder with that name, numbered if taken; safe for concurrent callers."""
    for number in count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            path.mkdir(mode=0o755)  # others never write into it, whatever the umask
            return path
    raise AssertionError("numbers have no end")


@dataclass(frozen=True)
class Call:
    """A program and its arguments."""

    program: Program
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def prepare(self, **given: Any) -> Playing:
        """Create the program's coroutine with what the run provides."""
        return self.program.prepare(list(self.args), dict(self.kwargs), **given)

    def keep(self, folder: Path, values: Values) -> None:
        """Store the call with its run; the program itself only if it cannot be imported."""
        from qtide.core.values import Unstorable

        program = None if importable(self.program) else self.program
        try:
            packed = values.pack((program, self.args, self.kwargs), by_value=True)
        except Unstorable as error:
            raise UsageError(
                f"the arguments of {self.program.name} have to be kept with its run, but {error}; "
                "give plain data, arrays, or a path"
            ) from None
        places = [str(Path(place).absolute()) for place in sys.path]
        write_json(folder / NAME, packed.as_json() | {"path": places})

    @staticmethod
    def read(folder: Path, values: Values, spec: Spec) -> Call:
        """Read the call of a run created earlier or on the command line."""
        from qtide.programs.arguments import parse
        from qtide.programs.program import load

        if spec.session:
            raise UsageError(
                f"{folder.name} is a session, not a program: start its script {spec.program} again"
            )
        try:
            kept, args, kwargs = _kept(folder, values)
        except FileNotFoundError:
            program = load(spec.program)
            return Call(program, *parse(program, spec.words))
        return Call(kept or load(spec.program), args, kwargs)


def created(root: Path, name: str, spec: Spec, call: Call | None = None) -> RunFolder:
    """Create a run; store a call made from Python with it and give it a copy of the arguments."""
    run = RunFolder.create(root, name, spec)
    if call is not None:
        try:
            call.keep(run.path, run.values)
        except UsageError:
            rmtree(run.path)
            raise
        _, args, kwargs = _kept(run.path, run.values)
        run.call = Call(call.program, args, kwargs)
    return run


def _kept(folder: Path, values: Values) -> tuple[Program | None, Sequence[Any], Mapping[str, Any]]:
    """Read what `keep` stored; the program is None if it can be imported."""
    from qtide.core.values import Packed

    entry = read_json(folder / NAME)
    sys.path += [place for place in entry.pop("path", ()) if place not in sys.path]
    try:
        program, args, kwargs = values.unpack(Packed.from_json(entry))
    except Exception as error:
        raise Damaged(
            f"the arguments in {folder / NAME} cannot be read ({error}); start a new run"
        ) from None
    return program, args, kwargs


def reference(program: Program) -> str:
    """Reference to a program: file or module, and name; `<name>` if not importable (notebooks)."""
    module, name = sys.modules.get(program.function.__module__), program.function.__name__
    file = getattr(module, "__file__", None)
    if module is None or getattr(module, name, None) is not program:
        return f"<{name}>"
    if module.__name__ == "__main__" or "." not in module.__name__:
        return f"{Path(file).absolute()}:{name}" if file else f"<{name}>"
    return f"{module.__name__}:{name}"


def importable(program: Program) -> bool:
    """Whether another process can import it."""
    return not reference(program).startswith("<")


def newest_last(folder: Path) -> list[RunFolder]:
    """All runs in a folder, in order of creation."""
    return sorted(RunFolder.all(folder), key=lambda run: (run.created, run.name))
