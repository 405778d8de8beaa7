"""Who may do what: asked by the service alone, so that it is the same by every API."""

from __future__ import annotations

from qtide.service.refusals import Forbidden, NotFound
from qtide.service.task import Caller, Task


def check_operates(caller: Caller) -> None:
    """Refuse what operators alone may do."""
    if not caller.operator:
        raise Forbidden(f"{caller.user} is no operator of this service")


def whose(caller: Caller, *, everybody: bool) -> str | None:
    """The user whose tasks and accounts are shown; None, for operators, is everybody."""
    if not everybody:
        return caller.user
    check_operates(caller)
    return None


def sees(caller: Caller, task: Task) -> bool:
    """Whether somebody may know of a task, and end it; others do not learn that there is one."""
    return caller.operator or owns(caller, task)


def owns(caller: Caller, task: Task) -> bool:
    """Whether payload and answer of a task are the caller's."""
    return task.caller.user == caller.user


def check_owns(caller: Caller, task: Task) -> None:
    """Refuse payload and answer to everybody but the owner, operators included."""
    if not owns(caller, task):
        raise NotFound(f"the task {task.id!r} is somebody else's; operators see no payloads")
