"""Runs MPI programs for the tests, each within a hard limit, with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.backends.slurm.stage import until

PROGRAMS = Path(__file__).parent / "programs"


class Stage:
    """One test's programs, on one kind of cluster."""

    def __init__(self, folder: Path, conf: Path | None) -> None:
        self.folder = folder
        self.variables = os.environ | {"QTIDE_CLUSTER": "slurm" if conf else "local"}
        if conf:
            self.variables["SLURM_CONF"] = str(conf)

    def start(
        self, program: str, *words: str, launcher: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start a program; its last argument is the test's folder."""
        return subprocess.Popen(
            [*launcher, sys.executable, PROGRAMS / program, *words, *self._last(program)],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _last(self, program: str) -> list[Path]:
        """Examples take no folder: theirs is where they are started."""
        return [] if Path(program).is_absolute() else [self.folder]

    def run(
        self, program: str, *words: str, limit: float = 60.0, launcher: Sequence[str] = ()
    ) -> str:
        """What a program prints; it has to succeed, and leave no process behind."""
        process = self.start(program, *words, launcher=launcher)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{program} hung:\n{out}\n{err}") from None
        assert process.returncode == 0, f"{out}\n{err}"
        assert until(lambda: not self.processes(), 10), self.processes()
        return out

    def processes(self) -> list[str]:
        """The processes of this test that are still there: they name its folder."""
        listed = subprocess.run(
            ["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True
        )
        own = [line for line in listed.stdout.splitlines() if str(self.folder) in line]
        return [line for line in own if line.split()[1][0] != "Z"]
