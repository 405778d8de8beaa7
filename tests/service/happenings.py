"""What may happen to a service in virtual time: random steps, and a player of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from qtide.service.policies.policy import POLICIES
from qtide.service.store import StoreFailed
from qtide.service.task import (
    Caller,
)
from qtide.service.virtual_service import Fate
from tests.service.simulation import OPERATOR, Site

LONGEST = 4e6
"""Virtual seconds within which everything has to be over."""

callers = st.builds(
    Caller, st.sampled_from(("ada", "bob", "cyd")), st.sampled_from(("", "physics", "maths"))
)
seconds = st.sampled_from((0.0, 0.001, 0.02, 1.0, 7.0, 30.0))
fates = st.builds(
    Fate,
    st.sampled_from(("answer",) * 6 + ("error", "fault", "death", "hang")),
    st.sampled_from((0.0, 0.5, 1.0, 1.0, 3.0)),
)
setups = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(POLICIES.names()),
        "retries": st.integers(0, 3),
        "limit": st.sampled_from((5.0, 60.0)),
        "chunk": st.sampled_from((None, 0.3)),
        "at_once": st.sampled_from((1, 3)),
        "sessions": st.sampled_from((None, {"longest": 40.0, "idle": 8.0})),
        "calibration": st.sampled_from((None, None, {"every": 50.0, "lasts": 10.0})),
    }
)
Step = Callable[[Site], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Act:
    """A step with its arguments, which a failing test shows."""

    name: str
    words: tuple[Any, ...]
    more: dict[str, Any]

    def __call__(self, site: Site) -> Coroutine[Any, Any, None]:
        done: Coroutine[Any, Any, None] = getattr(site, self.name)(*self.words, **self.more)
        return done


def submits(caller: Caller, seconds: float, **more: Any) -> Step:
    return Act("submit", (caller, seconds), more)


def holds(caller: Caller, seconds: float, idle: float, tasks: list[float], gap: float) -> Step:
    return Act("hold", (caller, seconds, idle, tasks, gap), {})


def cancels(number: int) -> Step:
    return Act("cancel", (number,), {})


async def looks(site: Site) -> None:
    await site.look()


async def kills_the_worker(site: Site) -> None:
    if site.device.worker is not None:
        site.device.worker.die()


async def breaks_the_device(site: Site) -> None:
    site.device.broken = not site.device.broken
    await kills_the_worker(site)


async def loses_the_store(site: Site) -> None:
    site.store.broken = not site.store.broken


async def drains(site: Site) -> None:
    with suppress(StoreFailed):
        await site.service.operations.drain(OPERATOR, "dev", "cooling", licences=False)


async def resumes(site: Site) -> None:
    with suppress(StoreFailed):
        await site.service.operations.resume(OPERATOR, "dev")


async def reloads(site: Site) -> None:
    """The device is replaced, under another policy."""
    old = site.service.configuration
    setup = old.devices["dev"]
    policy = "fifo" if setup.policy == "fair" else "fair"
    fair = old.fair.model_copy(update={"head_start": old.fair.head_start + 1.0})
    devices = {"dev": setup.model_copy(update={"policy": policy})}
    site.service.reconfigure(old.model_copy(update={"devices": devices, "fair": fair}))


submissions = st.builds(
    submits,
    callers,
    seconds,
    priority=st.integers(-2, 2),
    beside_others=st.booleans(),
    max_wait=st.sampled_from((None, None, None, 0.0, 10.0, 1e3)),
    key=st.sampled_from((None, None, "one", "other")),
)
sessions = st.builds(
    holds,
    callers,
    st.sampled_from((2.0, 40.0)),
    st.sampled_from((0.5, 8.0)),
    st.lists(seconds, max_size=4),
    st.sampled_from((0.0, 0.1, 3.0)),
)
harmless = submissions | sessions | st.builds(cancels, st.integers(0, 50)) | st.just(looks)
harmful = st.sampled_from(
    (
        *(kills_the_worker, breaks_the_device, loses_the_store, drains, resumes, reloads),
        *(Site.kill, Site.restart),
    )
)
delays = st.sampled_from((0.0, 0.0, 0.0001, 0.0003, 0.01, 1.0, 5.0, 40.0))


def play(site: Site, steps: list[tuple[float, Step]]) -> Site:
    """Let everything happen in its time, wait until all is over, and check the outcome."""

    async def main() -> None:
        await site.open()
        for delay, step in steps:
            await site.world.sleep(delay)
            begun = site.world.start(step(site))
            if step in (Site.kill, Site.restart):
                await begun  # there is one service at a time
            watched.append(begun)
        await site.world.sleep(1e-6)  # so that the last step has started
        await site.settle()

    watched: list[Any] = []
    site.world.run(main(), until=LONGEST)
    for each in watched:
        if each.done() and not each.cancelled():
            each.result()
    site.check()
    return site
