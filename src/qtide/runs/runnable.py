"""Programs as users hold them: run, submitted and compared from Python, with their own types."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from qtide.plugins import Plugins
from qtide.programs.program import Program

if TYPE_CHECKING:
    from qtide.runs.action import Action
    from qtide.runs.run import Run

P = ParamSpec("P")
T = TypeVar("T")

COMMAND: Plugins[Callable[[list[str]], None]] = Plugins("console_scripts", "command")
"""The command line, which is above this layer."""


class Runnable(Program, Generic[P, T]):
    """A hybrid program: `run` and `submit` take its arguments, and the options of a run."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        nodes: int | None = None,
    ) -> None:
        super().__init__(function, nodes)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The coroutine, as a plain call of the function gives it: for use in another program."""
        return super().__call__(*args, **kwargs)

    @property
    def run(self) -> Action[P, Run[T]]:
        """Run it to its end, as `qtide run` does; returns the run, or raises its error."""
        return self.using().run

    @property
    def submit(self) -> Action[P, Run[T]]:
        """Start it with a driver of its own, as `qtide submit` does, and give the run at once."""
        return self.using().submit

    def using(self, **options: Any) -> Using[P, T]:
        """The program with options of its runs; its own arguments may then have any names."""
        return Using(self, options)

    def main(self) -> None:
        """Run it with the words of the command line, if its file is what Python was started with.

        It takes all that `qtide run` takes. The last line of a file: `mine.main()`.
        """
        if self.function.__module__ == "__main__":
            from qtide.runs.call import reference

            COMMAND.load("qtide")(["run", reference(self), *sys.argv[1:]])


class Using(Generic[P, T]):
    """A program and options of its runs."""

    def __init__(self, program: Runnable[P, T], options: dict[str, Any]) -> None:
        self._program = program
        self._options = options

    @property
    def run(self) -> Action[P, Run[T]]:
        """Run it to its end, and give the run."""
        from qtide.runs.action import Action, run

        return Action(self._program, self._options, run)

    @property
    def submit(self) -> Action[P, Run[T]]:
        """Start it with a driver of its own, and give the run at once."""
        from qtide.runs.action import DRIVER, Action, submit

        return Action(self._program, self._options, submit, DRIVER)


@overload
def program(function: Callable[P, Coroutine[Any, Any, T]], /) -> Runnable[P, T]: ...
@overload
def program(*, nodes: int) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Runnable[P, T]]: ...
def program(function: Any = None, /, *, nodes: int | None = None) -> Any:
    """Mark an async function as a hybrid program; `nodes` is the most it can use."""

    def mark(marked: Any) -> Runnable[..., Any]:
        if not inspect.iscoroutinefunction(marked):
            raise TypeError(f"a program is an async function; {marked!r} is not: write `async def`")
        return Runnable(marked, nodes)

    return mark if function is None else mark(function)
