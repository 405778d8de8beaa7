"""Who may do what: only the service asks, so that it is the same in every API."""

from __future__ import annotations

from collections.abc import Iterable

from qtide.service.configuration import DeviceSetup
from qtide.service.device.device import ServedDevice
from qtide.service.refusals import Forbidden, NotFound
from qtide.service.task import Caller, Task


def check_operates(caller: Caller) -> None:
    """Refuse what only operators may do."""
    if not caller.operator:
        raise Forbidden(
            f"{caller.user} is not an operator of this service; its own user makes a token for "
            "one: qtide token new NAME --operator"
        )


def may_use(caller: Caller, setup: DeviceSetup) -> bool:
    """Whether a device is for this caller: by user or by account; for all if it names neither."""
    if caller.operator or (setup.users is None and setup.accounts is None):
        return True
    return caller.user in (setup.users or ()) or caller.account in (setup.accounts or ())


def usable(caller: Caller, devices: Iterable[ServedDevice]) -> list[ServedDevice]:
    """Those of the devices that a caller may use; others do not learn that there are more."""
    return [each for each in devices if may_use(caller, each.setup)]


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
