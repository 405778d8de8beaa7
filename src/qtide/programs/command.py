"""Commands: executables as tasks.

A command is a task whose function starts a program on its node, so strategies, journal and clusters
treat it like any other task. `programs/command_run.py` is what a node does with it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from qtide.core.job import CommandSettings
from qtide.programs.phase import Task, TaskAttempt, created

Word = str | int | float | Path
"""A word of a command line; a path is made absolute."""
Files = Mapping[str, str | Path] | Iterable[str | Path]
"""Files, each with the name that stands for it in braces; in a list, that is the file's own."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    exit_code: int
    output: str
    """What it wrote to stdout: the end of it, if it is longer than a mebibyte."""
    errors: str
    """What it wrote to stderr, likewise."""
    seconds: float
    files: dict[str, Path]
    """The files that `writes` names, by their paths within the command's folder."""
    folder: Path
    """The folder with these files, kept with the run."""
    left_out: int = 0
    """Bytes of `output` and `errors` that are missing at their beginnings."""


class CommandAttempt(NamedTuple):
    """What a node has to know about its part in an attempt to run a command."""

    rank: int
    gang: str
    key: str
    folder: Path
    settings: CommandSettings


@dataclass(frozen=True)
class Command:
    """A program to start on a node, or one MPI program on several nodes."""

    words: tuple[str, ...]
    reads: Mapping[str, Path]
    """Absolute paths of files, by the names that stand for them in the words."""
    writes: tuple[str, ...]
    """Files to keep, as patterns relative to the working folder."""
    stdin: bytes | Path | None
    stdout: str | None
    """The file of the working folder that gets the output."""
    env: Mapping[str, str]
    folder: Path | None
    """The working folder; None for a new one for each attempt."""
    success: tuple[int, ...]
    """Exit codes that mean success."""
    settings: CommandSettings
    """What the command says for itself; it goes before the run's settings."""
    name: str
    nodes: int = 1
    ranks_per_node: int = 1

    def __post_init__(self) -> None:
        # functions have this attribute; a class body cannot define it for its instances
        object.__setattr__(self, "__qualname__", self.name)

    @property
    def ranks(self) -> int:
        """The number of processes of the MPI program; 1 for any other program."""
        return self.nodes * self.ranks_per_node

    def __call__(self, *, attempt: CommandAttempt) -> Any:
        """Run on this node; return the result, or None on the further nodes of an MPI program."""
        from qtide.programs.command_run import run  # only nodes need it

        return run(self, attempt)


@dataclass(frozen=True, eq=False)
class CommandTask(Task[CommandResult]):
    """A command as a task."""

    def on(  # type: ignore[override]  # one program over all nodes has one result, not a list
        self, nodes: int, *, ranks_per_node: int = 1
    ) -> CommandTask:
        """Run an MPI program with `ranks_per_node` processes on each of `nodes` nodes."""
        if ranks_per_node < 1:
            raise ValueError(
                f"the command {self.name} needs at least one rank per node, not {ranks_per_node}"
            )
        if nodes < 1:
            raise ValueError(f"the command {self.name} needs at least one node, not {nodes}")
        self.use()
        assert isinstance(self.function, Command)
        function = replace(self.function, nodes=nodes, ranks_per_node=ranks_per_node)
        return created(replace(self, function=function, nodes=nodes))

    def keywords(self, attempt: TaskAttempt) -> dict[str, Any]:
        """Tell the node where the run is, and which part of the attempt it has."""
        fields = (getattr(attempt, name) for name in CommandAttempt._fields)
        return {"attempt": CommandAttempt(*fields)}

    def result(self, results: list[Any]) -> Any:
        """The result of the first node, which has started the program."""
        return results[0]

    def __str__(self) -> str:
        return f"command({self.name}, …)"


class CommandKeywords(TypedDict, total=False):
    """The keyword arguments of `command()`."""

    reads: Files
    writes: str | Sequence[str]
    stdin: str | bytes | Path | None
    stdout: str | None
    env: Mapping[str, Word] | None
    folder: str | Path | None
    success: Iterable[int]
    modules: str | Sequence[str]
    wrapper: str | Sequence[str]
    launcher: str | Sequence[str]
    name: str


def command(
    program: str | Path,
    /,
    *words: Word,
    reads: Files = (),
    writes: str | Sequence[str] = (),
    stdin: str | bytes | Path | None = None,
    stdout: str | None = None,
    env: Mapping[str, Word] | None = None,
    folder: str | Path | None = None,
    success: Iterable[int] = (0,),
    modules: str | Sequence[str] = (),
    wrapper: str | Sequence[str] = (),
    launcher: str | Sequence[str] = (),
    name: str = "",
) -> CommandTask:
    """Create a task that runs a program; its result is a `CommandResult`.

    The program runs in a new folder of the run, with links to the files that it `reads`; a name of
    these in braces stands for the file. The files that it `writes` are kept with the run. `stdin`
    is text, or the path of a file. With `folder`, the program runs there instead. In logs and
    figures, the task has the `name`, or that of the program.
    """
    made = Command(
        (_program(program), *(_word(each) for each in words)),
        _reads(reads),
        (writes,) if isinstance(writes, str) else tuple(writes),
        stdin.encode() if isinstance(stdin, str) else _absolute(stdin),
        stdout,
        {_variable(name): _word(value) for name, value in (env or {}).items()},
        _absolute(Path(folder)) if folder is not None else None,
        tuple(success),
        CommandSettings(
            modules if isinstance(modules, str) else " ".join(modules),
            wrapper if isinstance(wrapper, str) else shlex.join(wrapper),
            launcher if isinstance(launcher, str) else shlex.join(launcher),
        ),
        name or Path(program).name or str(program),
    )
    for pattern in (*made.writes, *([stdout] if stdout else [])):
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ValueError(
                f"writes= and stdout= take files within the working folder, not {pattern!r}"
            )
    if stdout in {path.name for path in made.reads.values()}:
        raise ValueError(f"stdout= would overwrite {stdout!r}, which the command reads")
    return created(CommandTask(made))


def _program(program: str | Path) -> str:
    """Make a path absolute; a bare name is searched for on the node."""
    text = os.fspath(program)
    if not text:
        raise ValueError("command() takes the name or path of a program first, not an empty text")
    whole = "/" in text or isinstance(program, Path)
    return str(Path(text).absolute()) if whole else _word(text)


def _word(word: Word) -> str:
    if isinstance(word, Path):
        return str(word.absolute())
    if not isinstance(word, str | int | float):
        raise TypeError(f"a word of a command is text, a number or a path, not {word!r}")
    if "\0" in (text := str(word)):
        raise ValueError(f"a word of a command cannot contain the null byte: {text!r}")
    return text


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError(f"env= has names of variables, not {name!r}")
    return name


def _absolute(path: Any) -> Any:
    return path.absolute() if isinstance(path, Path) else path


def _reads(files: Files) -> dict[str, Path]:
    if isinstance(files, str | Path):
        files = [files]
    named = files if isinstance(files, Mapping) else {Path(each).name: each for each in files}
    found = {name: Path(path).absolute() for name, path in named.items()}
    if len({path.name for path in found.values()}) < len(list(files)):
        raise ValueError("reads= has two files of the same name; they would be one in the folder")
    return found
