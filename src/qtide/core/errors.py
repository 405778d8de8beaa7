"""Failures a user can act on; each is one sentence: what went wrong, where, and what to do."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from pathlib import Path


class QtideError(Exception):
    """Something failed; the command ends with exit code 1."""

    exit_code = 1


class UsageError(QtideError):
    """The request is wrong or impossible; the command ends with exit code 2."""

    exit_code = 2


class NotEnoughNodes(UsageError):  # noqa: N818 - says what is wrong
    """More nodes were requested than can be granted."""


class NodeUnusable(NotEnoughNodes):
    """A node was granted, but no agent started on it."""

    exit_code = 1


class BackendFailed(QtideError):  # noqa: N818 - what happened
    """A cluster or a service refused a request, or did not answer."""


class PhaseError(Exception):
    """A phase could not be run; the program may catch this and continue without it."""


class NodeLost(PhaseError):  # noqa: N818 - named after the event
    """A node died or was taken away before it answered; its task runs again on another one."""


class NodeTaskFailed(PhaseError):  # noqa: N818 - named after the event
    """A task raised an exception that cannot be unpickled; only its text is known."""


class CommandFailed(PhaseError):  # noqa: N818 - named after the event
    """A command could not be started, or ended with an exit code that means failure."""


class TimedOut(PhaseError, TimeoutError):  # noqa: N818 - what happened
    """A task or payload ran longer than its `within` allows and was ended."""


HOME = Path(__file__).parents[1]


def own_lines(error: BaseException) -> list[str]:
    """Traceback lines of the user's code; if there are none, the last one outside qtide."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [each for each in frames if not Path(each.filename).is_relative_to(HOME)]
    own = [each for each in others if not foreign(each.filename)] or others[-1:]
    return [f"{each.filename}:{each.lineno} in {each.name}: {each.line}" for each in own]


def noted(error: Exception, task: str, node: str, lines: Iterable[str]) -> Exception:
    """Return a task's exception with notes that name the task, the node and the user's lines."""
    error.add_note(f"in the task {task} on node {node}")
    for line in lines:
        error.add_note(f"  {line}")
    return error


def definition(function: object) -> list[str]:
    """Where a function is defined, if it is a Python function."""
    code = getattr(function, "__code__", None)
    return [f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"] if code else []


def foreign(filename: str) -> bool:
    """Whether a file is qtide's, Python's or a library's."""
    path = Path(filename)
    inside = any(path.is_relative_to(place) for place in (HOME, Path(os.__file__).parent))
    return inside or "site-packages" in path.parts or filename.startswith("<frozen")
