"""The adviser `auto`: plays the newest run of a program under every strategy, on the site as it is.

What the site is like now comes from whoever knows: the cluster says how long a request would wait,
the vQPU service how long a payload would wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from qtide.client.client import Client, ServiceFailed
from qtide.clusters.kind import cluster_kind
from qtide.errors import QtideError
from qtide.ledger.ledger import Interval
from qtide.models.site import SiteModel
from qtide.runs.advised import Advised
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.twin.advice import advise
from qtide.twin.calibrate import calibrate, job_of
from qtide.twin.hybrid import HybridJob

PATIENCE = 2.0
"""Seconds that a service may take to say how long its queues are."""


@dataclass(frozen=True)
class Present:
    """How long a job waits now for nodes and, per payload, for the QPU: seconds of the run's clock.

    None if nobody knows.
    """

    nodes: float | None = None
    payload: float | None = None
    words: tuple[str, ...] = ()
    """Who says so."""


def choose(spec: Spec, runs: Path) -> Advised:
    """The best strategy for a run that is about to start."""
    earlier = _earlier(spec, RunFolder.all(runs))
    if earlier is None:
        return Advised(Spec("").strategy, f"no earlier run of {spec.program} is known")
    spans = [span for span in earlier.intervals() if not span.open_ended]
    job = job_of(spans, 1)
    job = replace(job, nodes=spec.nodes or max(1, *(len(step.tasks) for step in job.steps)))
    now = present(spec, job)
    advice = advise(job, _site(spans, job, now), now.nodes or 0.0)
    return Advised(advice.strategy, "; ".join((f"by {earlier.name}", *now.words, advice.why)))


def present(spec: Spec, job: HybridJob) -> Present:
    """What the cluster and the service say about their queues now."""
    kind, _ = cluster_kind(spec.cluster)
    setting = spec.setting()
    try:
        queue = kind.queue(setting, job.nodes)
    except QtideError:  # the run itself will say what is wrong
        queue = None
    payload, said = _at_service(spec)
    words = [*([queue.words] if queue else []), *said]
    wait = queue.wait / spec.time_scale if queue else None
    return Present(wait, payload, tuple(words))


def _site(spans: Sequence[Interval], job: HybridJob, now: Present) -> SiteModel:
    """The site of the earlier run; what is known of the present replaces what was then."""
    site = calibrate([spans]).site(job.nodes)
    if now.nodes is not None:
        waits = [span.seconds for span in spans if span.what == "wait" and span.lane == "nodes"]
        site = replace(site, delays=replace(site.delays, grant=min(waits, default=0.0)))
    if now.payload is not None:
        site = replace(site, qpu=replace(site.qpu, wait=now.payload))
    return site


def _at_service(spec: Spec) -> tuple[float | None, list[str]]:
    """How long a payload waits there now, if the QPU is a service's."""
    parts = urlsplit(spec.qpu)
    if parts.scheme not in ("http", "https"):
        return None, []
    name = parts.path.strip("/")
    try:
        devices = Client(f"{parts.scheme}://{parts.netloc}", patience=PATIENCE).devices()
    except ServiceFailed:  # the run itself will say what is wrong
        return None, []
    waits = [each["expected_wait"] for each in devices if name in ("", each["name"])]
    known = [wait for wait in waits if wait is not None]
    if not known:
        return None, ["the service does not say when the QPU is back"]
    return min(known) / spec.time_scale, [f"payloads wait {min(known):.0f} s for the QPU"]


def _earlier(spec: Spec, runs: Iterable[RunFolder]) -> RunFolder | None:
    """The newest run of the program that is done; rather one on the same kind of cluster."""
    found = [run for run in runs if _fits(run, spec)]
    return max(found, key=lambda run: (*_likeness(run.spec, spec), run.created), default=None)


def _likeness(one: Spec, other: Spec) -> tuple[bool, bool]:
    kinds = {each.cluster.partition(":")[0] for each in (one, other)}
    return len(kinds) == 1, one.words == other.words


def _same(one: str, other: str) -> bool:
    """Whether two words name a program; those of Python name its function as well."""
    return one == other or one.rpartition(":")[0] == other or other.rpartition(":")[0] == one


def _fits(run: RunFolder, spec: Spec) -> bool:
    try:
        program, done = run.spec.program, run.state == "done" and not run.is_warm_up
    except (QtideError, OSError):  # of a version, or with a plug-in, that is not here
        return False
    return done and _same(program, spec.program)
