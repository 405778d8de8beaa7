"""What is done with a program from Python: it is run here, or submitted."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from qtide.errors import QtideError, UsageError
from qtide.programs.load import loading
from qtide.runs.call import Call, reference
from qtide.runs.folder import RunFolder
from qtide.runs.options import Options, parted
from qtide.runs.progress import progress
from qtide.runs.run import Run
from qtide.runs.session import play
from qtide.runs.start import BACKGROUND, check_driver, create, launch

if TYPE_CHECKING:
    from qtide.programs.program import Program

P = ParamSpec("P")
R = TypeVar("R")

NAME = ("name",)
DRIVER = ("name", "driver", "driver_option")
"""Options of the commands themselves."""


class Action(Generic[P, R]):
    """Takes the arguments of a program, of any type, and the options of a run, by their names.

    Python's types cannot express both at once. So without options the arguments are checked by the
    program's own types; with options, call `program.using(options...).run(arguments...)` for that.
    """

    def __init__(
        self,
        program: Program,
        options: dict[str, Any],
        perform: Callable[[Call, Options], R],
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
    def __call__(self, *args: Any, name: str, **more: Any) -> R: ...
    @overload
    def __call__(self, *args: Any, runs: str | Path, **more: Any) -> R: ...
    def __call__(self, *args: Any, **given: Any) -> R:
        """Do it."""
        if (file := loading()) is not None:
            raise UsageError(
                f"{file} runs {self._program.name} as soon as it is imported; put that below "
                '`if __name__ == "__main__":`'
            )
        kwargs, options = (given, {}) if self._options else parted(self._program, given, self._own)
        command = self._perform.__name__
        chosen = Options(command, self._options | options, self._own)
        return self._perform(Call(self._program, args, kwargs), chosen)


def run(call: Call, options: Options) -> Run[Any]:
    """Run it to its end, and raise what the program does."""
    return driven(_create(call, options))


def submit(call: Call, options: Options) -> Run[Any]:
    """Start it with a driver of its own."""
    driver = str(options.find("driver", BACKGROUND))
    check_driver(driver)
    folder = _create(call, options)
    launch(folder, driver, options.find("driver_option"))
    return Run(folder)


def driven(folder: RunFolder) -> Run[Any]:
    """Drive a run to its end in this process."""
    with progress(folder.spec) as tell:
        try:
            outcome = play(folder, tell)
        except CancelledError:
            raise _ended(folder) from None
    if outcome.error is not None:
        outcome.error.add_note(
            f"finished phases are kept; fix it, then: qtide.resume({folder.name!r})"
        )
        raise outcome.error
    return Run(folder)


def _create(call: Call, options: Options) -> RunFolder:
    spec = options.spec(reference(call.program))
    return create(spec, options.runs, str(options.find("name", "")), call)


def _ended(folder: RunFolder) -> BaseException:
    """A run that was ended from outside: by Ctrl-C here, or by `cancel` from anywhere."""
    if folder.presence.cancel_requested:
        return QtideError(f"{folder.name} was cancelled; go on with qtide.resume({folder.name!r})")
    return KeyboardInterrupt()
