"""How many calls are sent in one batch, by how long such calls took before."""

from __future__ import annotations

from typing import Any

import pytest

from qtide.interfaces.sessions.session_call import SessionCall, SessionFuture
from qtide.strategies.task_batch import BatchSizes
from tests.interfaces.sessions import calls


class Nobody:
    """Stands for a session that nobody waits for."""

    def before_wait(self, *_: Any) -> None: ...
    def failure_seen(self, *_: Any) -> None: ...
    def future_cancelled(self) -> None: ...


def made(number: int) -> list[SessionCall]:
    return [
        SessionCall(str(n), "", SessionFuture(Nobody()), calls.square, (n,)) for n in range(number)
    ]


@pytest.mark.parametrize(
    ("number", "seconds", "size"),
    [
        (5, 1.0, 1),  # long calls travel alone
        (10_000, 0.001, 50),  # as many as make up for the trip
        (400, 0.001, 50),  # at least four batches for each node
        (200, 0.001, 25),
        (17, 0.0001, 50),  # so little work is not worth a second trip
        (5_000, 0.0, 1000),
    ],
)
def test_calls_make_up_for_their_trip(number: int, seconds: float, size: int) -> None:
    sizes = BatchSizes(nodes=2)
    sizes.learn("square", seconds)
    assert sizes.size(made(number)) == size


def test_what_is_not_known_is_found_out_first() -> None:
    sizes = BatchSizes(nodes=2)
    assert [sizes.probes(made(number)) for number in (16, 17)] == [0, 4]
    assert sizes.size(made(3)) == 1
    sizes.learn("square", 1.0)
    assert sizes.probes(made(17)) == 0
