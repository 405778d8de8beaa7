"""What a job does that uses its QPU by QRMI. Prints the outcome of each step, as JSON."""

import json
import sys
import time
from typing import Any

from qrmi import (  # type: ignore[import-not-found]  # in an environment of its own
    Payload,
    QuantumResource,
    ResourceType,
    TaskStatus,
)

LIMIT = 60.0


def payload(shots: int) -> Any:
    """One qubit of two is 1."""
    instructions = [
        {"name": "prx", "locus": ["QB1"], "args": {"angle": 3.141592653589793, "phase": 0.0}},
        {"name": "measure", "locus": ["QB1", "QB2"], "args": {"key": "m"}},
    ]
    circuits = [{"name": "flip", "instructions": instructions}]
    words = json.dumps({"circuits": circuits, "shots": shots})
    return Payload.IQMServer(iqmjson=words, job_type="circuit", use_timeslot=False, tag=None)


def final_status(resource: Any, task: str) -> str:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        status = resource.task_status(task)
        if status not in (TaskStatus.Queued, TaskStatus.Running):
            break
    return str(status)


def steps(resource: Any) -> dict[str, Any]:
    acquisition = resource.acquire()
    done, stopped = resource.task_start(payload(10)), resource.task_start(payload(50_000))
    resource.task_stop(stopped)
    answer = {
        "accessible": resource.is_accessible(),
        "metadata": resource.metadata(),
        "target": json.loads(resource.target().value),
        "status": final_status(resource, done),
        "result": json.loads(resource.task_result(done).value),
        "logs": resource.task_logs(done),
        "stopped": final_status(resource, stopped),
    }
    resource.release(acquisition)
    return answer


if __name__ == "__main__":
    json.dump(steps(QuantumResource("star", ResourceType.IQMServer)), sys.stdout)
