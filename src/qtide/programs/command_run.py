"""What a node does with a command: prepares its folder and environment, runs it, keeps its files.

For an MPI program, the first node starts the launcher; the others wait for what it asks them to
start (`programs/launch.py`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from errno import ENOEXEC
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryFile
from typing import IO, Any

from qtide.core.errors import CommandFailed
from qtide.core.job import CommandSettings
from qtide.programs.command import Command, CommandAttempt, CommandResult

KEPT = 2**20
"""Maximum bytes of the output in the result."""
LOGGED = 4 * 2**20
"""Maximum bytes of the output to print; the run's log takes no more from one task."""
CHUNK = 2**18
LAST_LINES = 15
"""How many lines of the output an error shows."""
LINE = 500
"""Maximum characters of such a line."""
DRAIN = 0.5
"""Seconds to read the output once the program has ended; its children may keep it open."""
MODULES_LIMIT = 120.0
"""Seconds in which environment modules must load."""


def run(command: Command, attempt: CommandAttempt) -> CommandResult | None:
    """Run a command, or this node's part of it; raise CommandFailed if it fails."""
    if attempt.rank and not attempt.gang:
        return None  # in virtual time the first node runs all ranks
    if attempt.gang:
        from qtide.programs.launch import Leader, follow  # few commands use several nodes

        if attempt.rank:
            follow(_meeting(attempt), attempt.rank)
            return None
    with ExitStack() as open_ones:
        leader = None
        if attempt.gang:
            # even if the command cannot be started, the other nodes have to hear of it
            leader = open_ones.enter_context(Leader(_meeting(attempt), command.nodes))
        settings = _settings(command, attempt)
        environment = _environment(settings.modules, command.env)
        kept = attempt.folder / "commands" / f"{attempt.key.replace('/', '.')}-{token_hex(4)}"
        kept.mkdir(parents=True)
        folder = kept if command.folder is None else command.folder
        words = _words(command, settings, folder, environment)
        if command.ranks > 1:
            from qtide.programs.launch import launched  # as above

            words, environment = launched(words, environment, command, settings, leader)
        stdin = open_ones.enter_context(_stdin(command))
        began = time.time_ns()
        process = _started(command, words, folder, environment, stdin)
        with leader.watching(process) if leader else nullcontext():
            output, errors, seconds = _outputs(process, command, folder)
        if leader is not None:
            leader.dismiss()
        code = process.returncode
        if code not in command.success:
            raise _failed(command, code, folder, output, errors)
        files = _files(command, folder, kept, began)
    with suppress(OSError):
        kept.rmdir()  # if there is nothing in it
    left_out = output.left_out + errors.left_out
    return CommandResult(code, output.text, errors.text, seconds, files, kept, left_out)


def _meeting(attempt: CommandAttempt) -> Path:
    return attempt.folder / "commands" / f"{attempt.gang}.meeting"


def _settings(command: Command, attempt: CommandAttempt) -> CommandSettings:
    pairs = zip(command.settings, attempt.settings, strict=True)
    return CommandSettings(*(own or usual for own, usual in pairs))


def _environment(modules: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of a command; this process's own, not a copy, if nothing is different."""
    usual: Mapping[str, str] = _with_modules(modules) if modules else os.environ
    return {**usual, **own} if own else usual


@lru_cache(maxsize=8)
def _with_modules(modules: str) -> dict[str, str]:
    """The environment of a login shell that has loaded the modules."""
    names = shlex.split(modules)
    done = subprocess.run(
        ["bash", "-lc", 'module load "$@" >&2 && exec env -0', "bash", *names],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=MODULES_LIMIT,
        check=False,
    )
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
        raise CommandFailed(
            f"the modules {modules} cannot be loaded on {socket.gethostname()}: {told[-1]}"
        )
    entries = done.stdout.decode(errors="surrogateescape").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _words(
    command: Command, settings: CommandSettings, folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """The command line on this node; puts links to what the command reads into its folder."""
    for path in command.reads.values():
        if not path.exists():
            raise CommandFailed(
                f"the command {command.name} reads {path}, which does not exist on "
                f"{socket.gethostname()}"
            )
        if command.folder is None:
            (folder / path.name).symlink_to(path)
    words = list(command.words)
    for name, path in command.reads.items():
        seen = path.name if command.folder is None else str(path)
        words = [word.replace(f"{{{name}}}", seen) for word in words]
    if settings.wrapper:
        return [*shlex.split(settings.wrapper), *words]
    found = shutil.which(words[0], path=environment.get("PATH"))
    if found is None:
        raise _not_startable(words[0], environment)
    return [found, *words[1:]]


def _not_startable(program: str, environment: Mapping[str, str]) -> CommandFailed:
    host = socket.gethostname()
    if "/" not in program:
        where = environment.get("PATH", "")
        return CommandFailed(
            f"there is no program {program!r} on {host} (searched in {where}); give its path, or "
            "load its module"
        )
    if not Path(program).exists():
        return CommandFailed(
            f"there is no program {program} on {host}; build it, or give the right path"
        )
    if Path(program).is_dir():
        return CommandFailed(f"{program} on {host} is a folder, not a program")
    if os.access(program, os.X_OK):
        return CommandFailed(
            f"{program} on {host} cannot be started: the interpreter in its first line, or the "
            "loader that it needs, does not exist there"
        )
    return CommandFailed(f"{program} on {host} is not executable: chmod +x {program}")


def _stdin(command: Command) -> Any:
    """The file that the program reads from."""
    if isinstance(command.stdin, Path):
        try:
            return command.stdin.open("rb")
        except OSError as error:
            raise CommandFailed(
                f"the command {command.name} cannot read {command.stdin} from "
                f"{socket.gethostname()}: {error.strerror}"
            ) from None
    if command.stdin is None:
        return nullcontext(subprocess.DEVNULL)
    file = TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(command.stdin)
    file.seek(0)
    return file


def _started(
    command: Command,
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: IO[bytes] | int,
) -> subprocess.Popen[bytes]:
    """Start the program in this process's group, so that whatever ends the agent ends it too."""
    sys.stdout.flush()
    try:
        return subprocess.Popen(
            words,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=folder,
            env=None if environment is os.environ else environment,
        )
    except (FileNotFoundError, NotADirectoryError):
        if not folder.is_dir():
            raise CommandFailed(
                f"the working folder {folder} does not exist on {socket.gethostname()}"
            ) from None
        raise _not_startable(words[0], environment) from None
    except OSError as error:
        why = f"{error.strerror} ({words[0]})"
        if error.errno == ENOEXEC:
            why = f"{words[0]} is neither a program for it nor a script that begins with #!"
        raise CommandFailed(
            f"the command {command.name} cannot be started on {socket.gethostname()}: {why}"
        ) from None


class _Stream:
    """What a program writes to one of its streams."""

    def __init__(self, copy: IO[bytes] | None = None) -> None:
        self._copy = copy
        self._end = bytearray()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._passed = 0
        self.left_out = 0

    def take(self, data: bytes) -> None:
        """Print data for the run's log, and keep the last of it."""
        if self._copy is not None:
            self._copy.write(data)
        elif self._passed < LOGGED:
            sys.stdout.write(self._decoder.decode(data))
        self._passed += len(data)
        self._end += data
        if len(self._end) > 2 * KEPT:
            self._trim()

    def close(self) -> None:
        """End the last line in the log."""
        self._trim()
        if self._copy is not None:
            return
        if self._end and self._end[-1:] != b"\n":
            sys.stdout.write("\n")
        if self._passed > LOGGED:
            sys.stdout.write(f"(about {self._passed - LOGGED:,} bytes more were left out)\n")

    @property
    def text(self) -> str:
        """The end of the output."""
        return self._end.decode(errors="replace")

    def _trim(self) -> None:
        over = max(0, len(self._end) - KEPT)
        self.left_out += over
        del self._end[:over]


def _outputs(
    process: subprocess.Popen[bytes], command: Command, folder: Path
) -> tuple[_Stream, _Stream, float]:
    """Pass on what the program writes until it ends; return that, and its seconds."""
    began = time.perf_counter()
    assert process.stdout is not None
    assert process.stderr is not None
    with ExitStack() as open_ones:
        copy = None
        if command.stdout is not None:
            copy = open_ones.enter_context((folder / command.stdout).open("wb"))
        streams = {process.stdout.fileno(): _Stream(copy), process.stderr.fileno(): _Stream()}
        selector = open_ones.enter_context(DefaultSelector())
        for file in streams:
            selector.register(file, EVENT_READ)
        last: float | None = None
        while selector.get_map():
            ready = selector.select(DRAIN)
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                if data:
                    streams[key.fd].take(data)
                else:
                    selector.unregister(key.fd)
            if process.poll() is not None and selector.get_map():
                last = last or time.perf_counter() + DRAIN
                if not ready or time.perf_counter() > last:
                    break
        process.wait()
        output, errors = streams.values()
        output.close()
        errors.close()
    process.stdout.close()
    process.stderr.close()
    return output, errors, time.perf_counter() - began


def _failed(
    command: Command, code: int, folder: Path, output: _Stream, errors: _Stream
) -> CommandFailed:
    end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    told = (errors.text.strip() or output.text.strip()).splitlines()[-LAST_LINES:]
    text = f"the command {command.name} {end} on {socket.gethostname()}"
    if told:
        text += "; its last lines:\n" + "\n".join(f"  {line[:LINE]}" for line in told)
    error = CommandFailed(text)
    if command.folder is None:
        error.add_note(
            f"it ran in {folder}, a folder of its own: files of other folders are given with "
            "reads=, or as Path(...)"
        )
    return error


def _files(command: Command, folder: Path, kept: Path, began: int) -> dict[str, Path]:
    """The files that the command should have written, kept with the run."""
    wanted = [*command.writes, *([command.stdout] if command.stdout else [])]
    links = {path.name for path in command.reads.values()} if command.folder is None else set()
    found: dict[str, Path] = {}
    for pattern in wanted:
        matching = [
            path
            for path in sorted(folder.glob(pattern))
            if path.is_file() and path.name not in links and _is_new(path, folder, kept, began)
        ]
        if not matching:
            written = sorted(path.name for path in folder.iterdir() if path.name not in links)
            others = ", ".join(written[:5]) or "nothing"
            raise CommandFailed(
                f"the command {command.name} ended well, but has not written "
                f"{pattern!r} (in {folder} is {others})"
            )
        found |= {str(path.relative_to(folder)): path for path in matching}
    if folder != kept:
        for name, path in found.items():
            found[name] = kept / name
            found[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, found[name])
    return found


def _is_new(path: Path, folder: Path, kept: Path, began: int) -> bool:
    """Whether a file is this command's; in a folder that others use, an older one is not."""
    return folder == kept or path.stat().st_mtime_ns >= began - 10**9  # clocks of file servers
