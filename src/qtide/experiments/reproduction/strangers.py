"""Other users of a Slurm: each submits a job, waits until it has ended, pauses, and so on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from threading import Event, Thread

SUBMIT_LIMIT = 60.0
NOBODY = 65534
"""The user whose jobs they are, if this is root; otherwise they are the own user's."""


@dataclass(frozen=True)
class Strangers:
    """Users beside the experiment; their number decides how often a node is missing."""

    users: int
    nodes: int
    """Nodes that the site has for them; they may take any."""
    mean: float
    """Seconds of the experiment that a job of theirs takes, and that they pause after it."""

    @property
    def note(self) -> str:
        """Describe them in a sentence."""
        return (
            f"Beside the experiment, {self.users} users each submit jobs for one node, of "
            f"{self.mean:g} s and with a pause of {self.mean:g} s on average, to a partition that "
            f"has {self.nodes} nodes more."
        )

    @contextmanager
    def jobs(self, scale: float) -> Iterator[None]:
        """Let them work during the block, on the Slurm of the environment."""
        over = Event()
        threads = [Thread(target=self._user, args=(n, scale, over)) for n in range(self.users)]
        try:
            for each in threads:
                each.start()
            yield
        finally:
            over.set()
            for each in threads:
                each.join()

    def _user(self, number: int, scale: float, over: Event) -> None:
        random = Random(number)
        while not over.wait(scale * random.expovariate(1 / self.mean)):
            seconds = scale * random.expovariate(1 / self.mean)
            words = ["sbatch", "--quiet", "--wait", "--nodes=1", "--exclusive", "--chdir=/"]
            words += [f"--uid={NOBODY}", f"--gid={NOBODY}"] if os.geteuid() == 0 else []
            words += ["--job-name=stranger", "--output=/dev/null", f"--wrap=sleep {seconds:.3f}"]
            limit = SUBMIT_LIMIT + seconds
            subprocess.run(words, capture_output=True, check=False, timeout=limit)


OTHERS = Strangers(users=4, nodes=3, mean=60.0)
"""Now and then, a job of the experiment waits for one of its nodes, as on Leonardo."""
