"""Calibration sets: bound to tasks when they start, kept after the device has another one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.payloads.payload import Burst, encode
from qtide.core.world.virtual import VirtualWorld
from qtide.service.intake import Submission
from qtide.service.queries import find_calibration
from qtide.service.task import CalibrationTerms, Caller, Conflict
from tests.service.simulation import Site

ADA = Caller("ada")
PLAN = {"calibration": {"every": 50.0, "lasts": 10.0}}


def played(steps: Coroutine[Any, Any, None], site: Site) -> Site:
    site.world.run(steps, until=1e5)
    site.check()
    return site


def test_a_task_is_bound_to_the_set_that_it_began_on() -> None:
    site = Site(VirtualWorld(), PLAN)

    async def main() -> None:
        await site.open()
        for _ in range(2):
            await site.submit(ADA, 1.0)
            await site.world.sleep(60.0)
        await site.settle()

    played(main(), site)
    first, second = (row["calibration"] for row in site.rows())
    assert first != second
    for name, at in ((first, 0.0), (second, 50.0)):
        device, found = site.store.read(find_calibration(name))
        assert (device, found.id) == ("dev", name)
        assert found.at == pytest.approx(at, abs=1.5)


def test_a_set_stays_the_same_through_restarts() -> None:
    site = Site(VirtualWorld(), {})

    async def main() -> None:
        await site.open()
        await site.submit(ADA, 1.0)
        await site.world.sleep(100.0)
        await site.restart()
        await site.submit(ADA, 1.0)
        set_ = site.service.device("dev").calibration_set
        assert set_ is not None and set_.at < 2.0
        await site.settle()

    played(main(), site)
    assert len({row["calibration"] for row in site.rows()}) == 1


def test_a_task_for_a_set_that_is_gone_is_refused_or_ends_without_a_charge() -> None:
    site = Site(VirtualWorld(), PLAN)

    async def main() -> None:
        await site.open()
        await site.world.sleep(2.0)  # until the device is up
        present = site.service.device("dev").calibration_set
        assert present is not None
        terms = CalibrationTerms(present.id)
        site.world.start(site.submit(ADA, 45.0))
        await site.world.sleep(1.0)
        site.world.start(site.submit(ADA, 1.0, terms=terms))  # starts after the calibration
        await site.world.sleep(60.0)
        with pytest.raises(Conflict, match=f"wants the calibration set {present.id}, but"):
            await site.service.submit(ADA, _submission(terms))
        await site.settle()

    played(main(), site)
    _, late = site.rows()
    assert (late["state"], late["used"], late["attempts"]) == ("failed", 0.0, 0)
    assert late["error"].startswith("it wants the calibration set")


def test_a_task_of_a_session_runs_on_no_other_set_than_it_accepts() -> None:
    site = Site(VirtualWorld(), PLAN | {"sessions": {"longest": 200.0, "idle": 50.0}})

    async def main() -> None:
        await site.open()
        await site.world.sleep(2.0)
        held = Submission("dev", encode(Burst(150.0)), idle=50.0)
        session = await site.service.submit(ADA, held)
        await site.world.sleep(0.1)
        present = site.service.device("dev").calibration_set
        assert present is not None
        for seconds, terms in ((49.0, CalibrationTerms()), (1.0, CalibrationTerms(present.id))):
            site.world.start(site.submit(ADA, seconds, terms=terms, session=session.id))
        await site.world.sleep(70.0)
        await site.service.cancel(ADA, session.id)
        await site.settle()

    played(main(), site)
    _, first, late = site.rows()
    assert first["state"] == "done"
    assert (late["state"], late["used"], late["attempts"]) == ("failed", 0.0, 0)


@given(st.floats(1.0, 100.0), st.floats(0.0, 120.0))
def test_no_task_starts_on_an_older_calibration_than_it_accepts(within: float, at: float) -> None:
    site = Site(VirtualWorld(), PLAN)
    terms = CalibrationTerms(within=within)

    async def main() -> None:
        await site.open()
        await site.world.sleep(at)
        site.world.start(site.submit(ADA, 20.0))
        await site.world.sleep(0.5)
        await site.submit(ADA, 1.0, terms=terms)
        await site.settle()

    played(main(), site)
    for row in site.rows():
        if row["calibrated_within"] is not None and row["state"] == "done":
            _, found = site.store.read(find_calibration(row["calibration"]))
            assert row["started"] - found.at <= within + 0.1


def _submission(terms: CalibrationTerms) -> Submission:
    return Submission("dev", encode(Burst(1.0)), terms=terms)
