"""A program is not run by asyncio: whoever asks for its event loop is told what to use instead.

A phase is yielded to the driver. What asyncio offers would bypass that, and the journal with it, or
end in asyncio's own words about tasks and futures that the program's author never wrote.
"""

from __future__ import annotations

import sys
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Coroutine
from types import FrameType
from typing import Any, NoReturn

from qtide.errors import QtideError
from qtide.jobs.traceback import foreign

SIDE_BY_SIDE = "run phases side by side with `await together(a, b)`"
LIMIT = "limit a task or a payload with `await task(f, ...).within(seconds)`"
CALL = "let a task do it: `await task(f, ...)`"
ADVICE = {
    "sleep": "let a task wait: `await task(time.sleep, seconds)`",
    **dict.fromkeys(("timeout", "timeout_at", "wait_for", "Timeout"), LIMIT),
    **dict.fromkeys(("gather", "create_task", "ensure_future", "TaskGroup", "wait"), SIDE_BY_SIDE),
    **dict.fromkeys(("as_completed", "shield"), SIDE_BY_SIDE),
}


class NotInAProgram(QtideError):  # noqa: N818 - what is wrong
    """The program uses asyncio."""


class NoLoop:
    """Stands where asyncio looks for the running event loop."""

    def create_task(self, work: Any, **_: Any) -> NoReturn:
        """Refuse; the coroutine is closed, so that Python does not complain about it as well."""
        if isinstance(work, Coroutine):
            work.close()
        raise _refusal("create_task")

    def __getattr__(self, name: str) -> NoReturn:
        raise _refusal(name)

    def __hash__(self) -> NoReturn:  # asyncio looks up its current task by its loop
        raise _refusal("current_task")


NO_LOOP = NoLoop()


class without_loop:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within, asyncio finds no event loop but this one."""

    def __enter__(self) -> None:
        self._usual = _get_running_loop()
        _set_running_loop(NO_LOOP)  # type: ignore[arg-type]  # it is none

    def __exit__(self, *_: object) -> None:
        _set_running_loop(self._usual)


def refusal(name: str, place: str) -> NotInAProgram:
    """The sentence for a name of asyncio."""
    return NotInAProgram(f"{place}: a program cannot use asyncio.{name}; {ADVICE.get(name, CALL)}")


def place_of(program: Any) -> str:
    """The line of the user's own at which a coroutine waits."""
    found = ""
    while (frame := getattr(program, "cr_frame", None)) is not None:
        if not foreign(frame.f_code.co_filename):
            found = _line(frame)
        program = program.cr_await
    return found or "the program"


def _refusal(attribute: str) -> NotInAProgram:
    name, frame = attribute, sys._getframe(2)
    while _is_asyncio(frame) and frame.f_back is not None:
        name = frame.f_code.co_qualname.partition(".")[0]
        frame = frame.f_back
    while foreign(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return refusal(name, _line(frame))


def _is_asyncio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "asyncio"


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
