"""Programs as Python objects: `program` marks them; run or submit them from Python."""

from __future__ import annotations

import inspect
import os
import sys
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from qtide.core.errors import QtideError, UsageError
from qtide.interfaces.progress import progress
from qtide.interfaces.python.keywords import RunKeywords
from qtide.interfaces.python.run import Run
from qtide.programs.program import Program, loading
from qtide.runs.driver import play, remedy
from qtide.runs.folder import Call, RunFolder, newest_last, reference
from qtide.runs.run_options import RunOptions, parted
from qtide.runs.start import BACKGROUND, check_driver, create, launch, unless_refused

P = ParamSpec("P")
R = TypeVar("R")

NAME = ("name",)
DRIVER = ("name", "driver", "driver_option")
"""Options of the command itself rather than of the run."""


class Action(Generic[P, R]):
    """A callable that takes a program's arguments, and a run's options as keywords.

    Python's types cannot express both at once: a call without options is checked against the
    program's own types. To have arguments checked despite options, call
    `program.using(options...).run(arguments...)`.
    """

    def __init__(
        self,
        program: Program,
        options: dict[str, Any],
        perform: Callable[[Call, RunOptions], R],
        own: tuple[str, ...] = NAME,
    ) -> None:
        self._program = program
        self._options = options
        self._perform = perform
        self._own = own

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: Any, strategy: str, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, cluster: str, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, qpu: str, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, nodes: int, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, vqpus: int, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, time_scale: float, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, seed: int, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, needs: str, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, name: str, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, runs: str | Path, **more: Any) -> R: ...
    def __call__(self, *args: Any, **given: Any) -> R:
        """Run or submit the program."""
        if (file := loading()) is not None:
            raise UsageError(
                f"{file} runs {self._program.name} as soon as it is imported; put that below "
                '`if __name__ == "__main__":`'
            )
        kwargs, options = (given, {}) if self._options else parted(self._program, given, self._own)
        command = self._perform.__name__
        chosen = RunOptions(command, self._options | options, self._own)
        return self._perform(Call(self._program, args, kwargs), chosen)


def run(call: Call, options: RunOptions) -> Run[Any]:
    """Run the program to its end; raise its own error if it fails."""
    folder = _create(call, options)
    with unless_refused(folder):
        return driven(folder)


def submit(call: Call, options: RunOptions) -> Run[Any]:
    """Start the program with its own driver."""
    driver = str(options.find("driver", BACKGROUND))
    check_driver(driver)
    folder = _create(call, options)
    launch(folder, driver, options.find("driver_option"))
    return Run(folder)


def driven(folder: RunFolder) -> Run[Any]:
    """Drive a run to its end in this process."""
    with progress(folder.spec, run=folder) as tell:
        try:
            outcome = play(folder, tell)
        except CancelledError:
            raise _ended(folder) from None
    if outcome.error is not None:
        outcome.error.add_note(
            f"finished phases are kept; {remedy(outcome.error)}, "
            f"then: qtide.resume({folder.name!r})"
        )
        raise outcome.error
    return Run(folder)


def _create(call: Call, options: RunOptions) -> RunFolder:
    spec = options.spec(reference(call.program))
    return create(spec, options.runs, str(options.find("name", "")), call)


def _ended(folder: RunFolder) -> BaseException:
    """Return the error for a run cancelled by Ctrl-C here, or by `cancel` from anywhere."""
    if folder.presence.cancel_requested:
        return QtideError(
            f"{folder.name} was cancelled; continue with qtide.resume({folder.name!r})"
        )
    return KeyboardInterrupt()


def list_runs(folder: str | Path | None = None) -> list[Run[Any]]:
    """Return all runs in the folder of runs, newest last, as `qtide list --all` lists them."""
    return [Run(each) for each in newest_last(RunOptions("list", {"runs": folder}).runs)]


def resume(run: str | Path | Run[Any] = "last", *, runs: str | Path | None = None) -> Run[Any]:
    """Resume a run that failed, was interrupted or was killed, as `qtide resume` does.

    `run` is its name, a prefix of it, its folder, or `last`. Finished phases are not repeated.
    """
    if isinstance(run, Run):
        run = run.folder
    return driven(RunFolder.find(RunOptions("resume", {"runs": runs}).runs, str(run)).trusted())


T = TypeVar("T")


class Runnable(Program, Generic[P, T]):
    """A hybrid program; `run` and `submit` take its arguments and the options of a run."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        nodes: int | None = None,
        needs: str = "",
        payload: str = "",
    ) -> None:
        super().__init__(function, nodes, needs, payload)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Call the function itself; the coroutine can be awaited in another program."""
        return super().__call__(*args, **kwargs)

    @property
    def run(self) -> Action[P, Run[T]]:
        """Run the program to its end, as `qtide run` does; return the run or raise its error."""
        return self.using().run

    @property
    def submit(self) -> Action[P, Run[T]]:
        """Start the program with its own driver, as `qtide submit` does; return at once."""
        return self.using().submit

    def using(
        self, others: Mapping[str, Any] | None = None, /, **options: Unpack[RunKeywords]
    ) -> Using[P, T]:
        """Return the program with run options set; its arguments may then have any names.

        Pass the options of third-party plug-ins as a mapping: `using({"their": 3})`.
        """
        return Using(self, {**(others or {}), **options})

    def main(self) -> None:
        """Run the program with the command line's arguments, if its file is the main script.

        The command line takes all options of `qtide run`. Put `mine.main()` last in the file.
        """
        if self.function.__module__ == "__main__":
            sys.stdout.flush()
            sys.stderr.flush()
            words = [sys.executable, "-m", "qtide", "run", reference(self), *sys.argv[1:]]
            os.execv(sys.executable, words)  # replaces this process, so signals reach it


class Using(Generic[P, T]):
    """A program with options for its runs."""

    def __init__(self, program: Runnable[P, T], options: dict[str, Any]) -> None:
        self._program = program
        self._options = options

    @property
    def run(self) -> Action[P, Run[T]]:
        """Run the program to its end; return the run."""
        return Action(self._program, self._options, run)

    @property
    def submit(self) -> Action[P, Run[T]]:
        """Start the program with its own driver; return at once."""
        return Action(self._program, self._options, submit, DRIVER)


@overload
def program(function: Callable[P, Coroutine[Any, Any, T]], /) -> Runnable[P, T]: ...
@overload
def program(
    *, nodes: int | None = None, needs: str = "", payload: str = ""
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Runnable[P, T]]: ...
def program(
    function: Any = None, /, *, nodes: int | None = None, needs: str = "", payload: str = ""
) -> Any:
    """Mark an async function as a hybrid program.

    `nodes` is the maximum it can use; `needs` is what each of its tasks needs that does not say so
    itself, as in `"cores=4"`; `payload` is the format of its payloads, as in `"qpy"`: a device that
    does not take it is refused before anything runs.
    """

    def mark(marked: Any) -> Runnable[..., Any]:
        if not inspect.iscoroutinefunction(marked):
            raise TypeError(f"a program is an async function; {marked!r} is not: write `async def`")
        return Runnable(marked, nodes, needs, payload)

    return mark if function is None else mark(function)
