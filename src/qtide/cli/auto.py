"""--strategy auto: the twin chooses, by what an earlier run of the program says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qtide.cli.console import err
from qtide.errors import QtideError
from qtide.ledger.ledger import Interval
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec

AUTO = "auto"


def decided(spec: Spec, runs: Path) -> Spec:
    """The run with its strategy; if the twin is to choose it, says which and why."""
    if spec.strategy != AUTO:
        return spec
    earlier = _earlier(spec, runs)
    if earlier is None:
        chosen, why = Spec("").strategy, f"no earlier run of {spec.program} is known"
    else:
        chosen, why = _advised(spec, earlier.intervals())
        why = f"by the run {earlier.name}; {why}"
    err.print(f"strategy {chosen}: {why}", markup=False, highlight=False)
    return replace(spec, strategy=chosen)


def _earlier(spec: Spec, runs: Path) -> RunFolder | None:
    """The newest run of the program that is done; rather one with the same arguments."""
    found = [run for run in RunFolder.all(runs) if _fits(run, spec)]
    return max(found, key=lambda run: (run.spec.words == spec.words, run.created), default=None)


def _fits(run: RunFolder, spec: Spec) -> bool:
    try:
        return run.spec.program == spec.program and run.state == "done" and not run.is_warm_up
    except (QtideError, OSError):  # of a version, or with a plug-in, that is not here
        return False


def _advised(spec: Spec, spans: Sequence[Interval]) -> tuple[str, str]:
    from qtide.twin.advice import advise
    from qtide.twin.calibrate import calibrate, job_of

    job = job_of(spans, 1)
    widest = max((len(step.tasks) for step in job.steps), default=1)
    nodes = spec.nodes or max(1, widest)
    advice = advise(replace(job, nodes=nodes), calibrate([spans]).site(nodes), 0.0)
    return advice.strategy, advice.why
