"""The line of a notebook: what goes on is seen, however short what came before was."""

from __future__ import annotations

import queue

from qtide.backends.payloads.payload import Burst
from qtide.interfaces.progress import PAUSE, LiveProgress
from qtide.programs.phase import Quantum
from qtide.programs.replay import ReplayStep


class Place:
    """Stands for the line's place in a notebook."""

    def __init__(self) -> None:
        self.texts: queue.Queue[str] = queue.Queue()

    def wait_for(self, text: str) -> None:
        while self.texts.get(timeout=30) != text:
            pass


def test_the_phase_that_began_last_is_seen_though_many_ended_just_before() -> None:
    place = Place()
    with LiveProgress(place.texts.put, PAUSE) as line:
        for number in range(1000):
            phase = Quantum(Burst(1.0, number))
            phase.use()
            line.tell("mine", ReplayStep("begun", str(number), phase), float(number))
            if number < 999:
                line.tell("mine", ReplayStep("replayed", str(number), phase), number + 0.5)
        place.wait_for("999.0 s, 999 phases, 999 of them from the journal: quantum Burst")
        line.tell("mine", ReplayStep("done", "999", phase), 1000.0)
    place.wait_for("1,000.0 s, 1,000 phases, 999 of them from the journal")
