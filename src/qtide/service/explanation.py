"""Why a task waits: what stands before it, by which rule, and what would change that."""

from __future__ import annotations

from typing import Any

from qtide.service.device.served_device import ServedDevice
from qtide.service.task import ServiceTask, TaskStanding

RULES = {
    "fifo": "tasks start in the order in which they were accepted",
    "fair": "the account with the least device time for its share is next, then its user",
    "jobs": "the tasks of the oldest job start first",
    "priority": "a higher priority starts first; a minute of waiting makes up for one step",
    "shortest": "shorter tasks start first; ten seconds of waiting make up for one of duration",
}
"""The rules of the policies that come with qtide."""
CHANGES = {
    "fair": "your share recovers while others use the device",
    "jobs": "nothing: older jobs of all users go first",
    "priority": "a higher priority, if you may ask for one",
    "shortest": "a shorter task: fewer shots or circuits",
}
"""What would let a task start earlier, by policy."""
HINDRANCES = {
    "starting": "the device is starting; tasks begin when it is up",
    "down": "the device is down; tasks begin when it is back",
    "maintenance": "the device is drained or in maintenance; tasks begin when that is over",
    "calibration": "the device is being calibrated; tasks begin when that is over",
    "quota": "the quota is used up; the task waits for room in it, or for the next day (UTC)",
}


def _outcome(task: ServiceTask) -> str:
    """How a task ended, as a sentence."""
    why = f": {task.error}" if task.error else ""
    return f"the task is {task.state}{why}"


def explain(
    task: ServiceTask, standing: TaskStanding | None, device: ServedDevice | None
) -> dict[str, Any]:
    """Say why a task stands where it stands: the figures, and sentences made of them."""
    facts: dict[str, Any] = {"id": task.id, "state": str(task.state)}
    if standing is None or device is None:
        return facts | {"sentences": [_outcome(task)]}
    ahead, running = device.why(task)
    facts |= {"reason": standing.reason, "policy": device.setup.policy}
    facts |= {"tasks_ahead": ahead.tasks if ahead else 0, "seconds_running": running}
    facts |= {"seconds_ahead": ahead.seconds if ahead else 0.0}
    if task.route is not None:
        options = {name: each._asdict() for name, each in task.route.options.items()}
        facts |= {"route": {"class": task.route.kind, "floor": task.route.floor} | options}
    facts |= {"seconds_promised": ahead.promised if ahead else 0.0}
    return facts | {"sentences": _sentences(task, standing, facts, leased=device.leased)}


def _routed(task: ServiceTask) -> str:
    """Why a task for a class of devices is on one of them, as a sentence."""
    assert task.route is not None
    others = [name for name in task.route.options if name != task.device]
    rest = f"; {' or '.join(others)} would do as well" if others else "; no other would do"
    known = task.route.options[task.device].fidelity
    fidelity = "" if known is None else f", at an expected fidelity of {known:.3f}"
    moved = "once" if task.moves == 1 else f"{task.moves} times"
    again = f" (it moved {moved})" if task.moves else ""
    return f"of any:{task.route.kind}, it should end first on {task.device}{fidelity}{rest}{again}"


def _sentences(
    task: ServiceTask, standing: TaskStanding, facts: dict[str, Any], *, leased: bool
) -> list[str]:
    """Say in sentences why a task stands where it stands."""
    if standing.reason is None:
        return ["the task is on the device"]
    if standing.reason in HINDRANCES:
        return [HINDRANCES[standing.reason]]
    running, ahead, seconds = (
        facts[f] for f in ("seconds_running", "tasks_ahead", "seconds_ahead")
    )
    policy = facts["policy"]
    rule = RULES.get(policy, "its own order")
    found = []
    if task.route is not None:
        found.append(_routed(task))
    if task.share:
        done = f"{task.share * task.seconds:.3g} of {task.seconds:.3g} s"
        found.append(f"it gave way to another task after {done}; what it measured is kept")
    if leased:
        found.append(f"a session holds the device, for another {running:.3g} s at the longest")
    elif running:
        found.append(f"the device is busy for about {running:.3g} s with what is on it")
    tasks = "1 task is" if ahead == 1 else f"{ahead} tasks are"
    together = f"{tasks} before it, of about {seconds:.3g} s together"
    found.append(together if ahead else "no other waiting task is before it")
    found.append(f"the policy is {policy}: {rule}")
    if facts["seconds_promised"]:
        found.append(f"{facts['seconds_promised']:.3g} s of them have a promised start")
    change = CHANGES.get(policy)
    if task.max_wait is not None:
        found.append(f"it is promised to start within {task.max_wait:g} s of its submission")
    elif change is None:
        found.append("a promise would change that: submit it with max_wait")
    else:
        found.append(f"what would change that: {change}; or a promise: submit it with max_wait")
    return found
