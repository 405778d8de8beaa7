"""What a comparison is to run, checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from qtide.errors import UsageError
from qtide.runs.call import Call
from qtide.runs.comparison import Case, compare
from qtide.runs.driver import Tell
from qtide.runs.folder import check_name, stamp
from qtide.runs.precedent import with_precedent
from qtide.runs.site import is_virtual
from qtide.runs.spec import Spec
from qtide.runs.start import check


@dataclass(frozen=True)
class Wanted:
    """A program under several strategies, with several numbers of jobs at once."""

    spec: Spec
    strategies: tuple[str, ...]
    jobs: tuple[int, ...]
    call: Call | None = None
    warm_up: bool = field(default=True, kw_only=True)

    def __len__(self) -> int:
        return len(self.strategies) * len(self.jobs)

    @property
    def warms_up(self) -> bool:
        """In virtual time, nothing is to be warmed up."""
        return self.warm_up and not is_virtual(self.spec)

    def folder(self, runs: Path, name: str = "") -> Path:
        """Check everything; where the runs will be."""
        if self.spec.options.get("engine"):
            raise UsageError("a comparison is of qtide's own strategies; leave --engine out")
        title = check(self.spec, self.call)
        for number in self.jobs:
            if number < 1:
                raise UsageError(f"--jobs has to be at least 1, not {number}")
        check_name(name)
        folder = runs / (name or f"compare-{title}-{stamp()}")
        if folder.exists():
            raise UsageError(f"{folder} exists already; choose another --name")
        return folder

    def run(
        self, folder: Path, tell: Tell, ended: Callable[[Case], None] = lambda _: None
    ) -> list[Case]:
        """Run every case, one after the other."""
        spec, warm = with_precedent(self.spec, folder.parent), self.warms_up
        many = (self.strategies, self.jobs, tell, ended)
        return compare(folder, spec, *many, warm_up=warm, call=self.call)
