"""EASY backfilling, slow and as it is described: the witness for the fast one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Job:
    submit: float
    nodes: int
    run: float
    limit: float
    start: float = -1.0

    @property
    def end(self) -> float:
        return self.start + self.run

    @property
    def expected(self) -> float:
        return self.start + self.limit


def schedule(jobs: list[Job], nodes: int, *, backfill: bool = True) -> list[float]:
    """When each job starts."""
    coming = sorted(jobs, key=lambda job: job.submit)
    queue: list[Job] = []
    running: list[Job] = []
    while coming or queue or running:
        moments = [job.submit for job in coming] + [job.end for job in running]
        now = min(moments)
        running = [job for job in running if job.end > now]
        queue += [job for job in coming if job.submit <= now]
        coming = [job for job in coming if job.submit > now]
        _pass(queue, running, nodes, now, backfill=backfill)
    return [job.start for job in jobs]


def _pass(queue: list[Job], running: list[Job], nodes: int, now: float, *, backfill: bool) -> None:
    def free_at(moment: float) -> int:
        return nodes - sum(job.nodes for job in running if max(job.expected, now) > moment)

    def free_now() -> int:
        return nodes - sum(job.nodes for job in running)

    def start(job: Job) -> None:
        job.start = now
        running.append(job)
        queue.remove(job)

    while queue and queue[0].nodes <= free_now():
        start(queue[0])
    if not queue or not backfill or not free_now():
        return
    blocked = queue[0]
    ends = sorted(max(now, job.expected) for job in running)
    shadow = next(end for end in ends if free_at(end) >= blocked.nodes)
    for job in queue[1:]:
        fits = job.nodes <= free_now()
        in_time = now + job.limit <= shadow
        if fits and (in_time or job.nodes <= free_at(shadow) - blocked.nodes):
            start(job)
