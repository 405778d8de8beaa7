"""Who may do what: only the service asks, so that it is the same in every API."""

from __future__ import annotations

from qtide.service.refusals import Forbidden, NotFound
from qtide.service.task import Caller, Task


def check_operates(caller: Caller) -> None:
    """Refuse what only operators may do."""
    if not caller.operator:
        raise Forbidden(f"{caller.user} is not an operator of this service")


def whose(caller: Caller, *, everybody: bool) -> str | None:
    """The user whose tasks and accounts are shown; None means all users, for operators only."""
    if not everybody:
        return caller.user
    check_operates(caller)
    return None


def sees(caller: Caller, task: Task) -> bool:
    """Whether a caller may see and cancel a task; others do not learn that it exists."""
    return caller.operator or owns(caller, task)


def owns(caller: Caller, task: Task) -> bool:
    """Whether payload and answer of a task are the caller's."""
    return task.caller.user == caller.user


def check_owns(caller: Caller, task: Task) -> None:
    """Refuse payload and answer to all but the owner, even to operators."""
    if not owns(caller, task):
        raise NotFound(f"the task {task.id!r} belongs to another user; operators see no payloads")
