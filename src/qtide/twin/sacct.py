"""Slurm accounting as a workload: turns parsable sacct output into a trace with hybrid jobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from qtide.backends.models.trace import Trace
from qtide.core.errors import UsageError

COMMAND = (
    "sacct -aXP -S 2026-01-01 "
    "-o JobID,User,Partition,Submit,Start,End,NNodes,Timelimit,ReqTRES,JobName"
)
"""The job's name comes last: it is the only column that may contain the separator."""
REQUIRED = ("JobID", "Submit", "Start", "End", "NNodes")
HYBRID = r"license/qpu|qpu:|qtide"
"""Matches jobs that request a licence named qpu, or that qtide submitted."""
MARKS = ("JobName", "Partition", "ReqTRES", "AllocTRES", "Licenses", "Comment", "QOS")
"""Columns to search for the pattern of hybrid jobs."""


@dataclass(frozen=True)
class ImportedWorkload:
    """The jobs of sacct's output, and the number of skipped rows by reason."""

    trace: Trace
    left_out: Counter[str]

    @property
    def hybrids(self) -> int:
        """The number of hybrid jobs."""
        return 0 if self.trace.hybrid is None else int(self.trace.hybrid.sum())


def read_sacct(file: Path, hybrid: str = HYBRID) -> ImportedWorkload:
    """Read the output of COMMAND; `hybrid` is a regular expression that marks hybrid jobs."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); name a file") from None
    try:
        pattern = re.compile(hybrid, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--hybrid {hybrid!r} is no regular expression: {error}") from None
    names = lines[0].rstrip("|").split("|") if lines else []
    if missing := [name for name in REQUIRED if name not in names]:
        raise UsageError(f"{file} has no column {', '.join(missing)}; write it by: {COMMAND}")
    left_out: Counter[str] = Counter()
    users: dict[str, int] = {}
    rows: list[tuple[float, int, float, float, int, bool]] = []
    for line in lines[1:]:
        values = line.split("|", len(names) - 1)
        row = dict(zip(names, values, strict=False))
        if len(values) < len(names):
            left_out["have too few columns"] += 1
        elif "." not in row["JobID"]:  # job steps belong to their job
            try:
                submit, nodes, run, limit = _times(row)
            except ValueError as error:
                left_out[str(error)] += 1
                continue
            user = users.setdefault(row.get("User", ""), len(users) + 1)
            marked = any(pattern.search(row.get(name, "")) for name in MARKS)
            rows.append((submit, nodes, run, limit, user, marked))
    if not rows:
        reasons = ", ".join(described(left_out)) or "it has no rows"
        raise UsageError(f"{file} has no job that ran ({reasons}); write it by: {COMMAND}")
    return ImportedWorkload(_trace(rows), left_out)


def described(left_out: Counter[str]) -> Iterator[str]:
    """Describe the skipped rows."""
    for reason, number in left_out.most_common():
        yield f"{number:,} {reason}"


def _times(row: dict[str, str]) -> tuple[float, int, float, float]:
    """Return a row's submission time, nodes, run time and limit; raise ValueError if unusable."""
    if not row["NNodes"].isdecimal() or row["NNodes"] == "0":
        raise ValueError("have no nodes")
    if row["Start"] in ("Unknown", "None", ""):
        raise ValueError("have not started")
    if row["End"] in ("Unknown", "None", ""):
        raise ValueError("have not ended")
    try:
        submit, start, end = (
            datetime.fromisoformat(row[name]).timestamp() for name in ("Submit", "Start", "End")
        )
    except ValueError:
        raise ValueError("have times that cannot be read") from None
    run = end - start
    if run < 0:
        raise ValueError("end before they start")
    return submit, int(row["NNodes"]), run, max(run, _limit(row.get("Timelimit", ""), run))


def _limit(text: str, run: float) -> float:
    """Parse a limit such as 1-02:03:04, 02:03:04 or 03:04 to seconds; `run` if there is none."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or not (days or "0").isdecimal():
        return run
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return float(86_400 * int(days or "0") + seconds)


def _trace(rows: list[tuple[float, int, float, float, int, bool]]) -> Trace:
    """Build a trace whose first job is submitted at 0."""
    # Imported late: numpy takes 0.1 s, and unusable files are rejected before this point.
    import numpy as np

    rows.sort(key=lambda row: row[0])
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Trace(columns[0] - columns[0][0], *columns[1:])
