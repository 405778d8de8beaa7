"""The page in a real browser."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import dimod
import pytest
from playwright.sync_api import Browser, Page, expect

from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from tests.service.page.stand_ins import PREFIX, prefix_proxy, standing_by

DEVICES = """
[devices.dev]
kind = "burst"
policy = "fifo"

[devices.calm]
kind = "burst"
calibration = { every = 3600.0, lasts = 60.0 }

[devices.annealer]
kind = "annealer"
"""
HOSTILE = '<img src=x onerror="document.title=`owned`">'
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
SIZES = {"wide": WIDE, "narrow": NARROW}
CUT = "tables => tables.map((each) => each.scrollWidth - each.parentNode.clientWidth)"
"""Pixels by which tables are wider than what they scroll in."""
OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("page")
    with LocalService(folder, DEVICES, "publish_levels = true") as service:
        yield service


@pytest.fixture
def opened(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages; afterwards, each must have asked its own host alone, and failed nowhere."""
    asked: list[tuple[str, str]] = []
    errors: list[str] = []
    contexts = []

    def make(url: str, token: str = "", **settings: object) -> Page:
        context = browser.new_context(**settings)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: asked.append((request.url, url)))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        if token:
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("#link")).to_have_text("Live")
        return page

    yield make
    for context in contexts:
        context.close()
    assert errors == []
    assert asked
    for request, url in asked:
        assert urlsplit(request)[:2] == urlsplit(url)[:2]


def row(page: Page, id: str) -> str:  # noqa: A002 - the name users know
    return f'.plainlist [data-task="{id}"]'


def test_a_task_goes_through_its_states_without_a_reload(
    served: LocalService, opened: OpenPage
) -> None:
    client = served.client("ada", "physics")
    page = opened(served.url, client.access.token or "")
    page.goto(f"{served.url}/#/device/dev")
    first = client.submit(Burst(1.5, 1), "dev", name="the first").id
    second = client.submit(Burst(30.0, 2), "dev", name="the second").id
    third = client.submit(Burst(0.1, 3), "dev", name=HOSTILE, max_wait=200.0).id
    expect(page.locator(f'{row(page, first)}[data-state="running"]')).to_be_visible()
    waiting = page.locator(f'.room [data-task="{third}"]')
    expect(waiting).to_contain_text("tasks go first")
    expect(waiting).to_contain_text(HOSTILE)  # it stays text
    expect(page.locator(f'{row(page, first)}[data-state="done"]')).to_be_visible()
    expect(page.locator(f'{row(page, second)}[data-state="running"]')).to_be_visible()
    waiting.get_by_role("link").click()
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(page.get_by_text("promised to start within 200 s")).to_be_visible()
    page.get_by_role("button", name="Cancel the task").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()
    expect(page.locator("h1 + span .badge")).to_have_text("cancelled")
    assert client.task(third).state == "cancelled"
    client.task(second).cancel()
    expect(page).not_to_have_title("owned")
    assert page.locator("img[src=x]").count() == 0


def test_operators_drain_and_resume_and_users_cannot(
    served: LocalService, opened: OpenPage
) -> None:
    user = opened(f"{served.url}/#/device/calm", served.token("una"))
    operator = opened(f"{served.url}/#/device/calm", served.token("olga", operator=True))
    expect(user.get_by_role("heading", name="calm", exact=True).last).to_be_visible()
    assert user.get_by_role("button", name="Drain").count() == 0
    operator.get_by_role("button", name="Drain").click()
    operator.get_by_label("Reason").fill("cooling, back at 14:00")
    operator.get_by_role("dialog").get_by_role("button", name="Drain").click()
    card = user.locator('[data-device="calm"]')
    expect(card.locator(".badge")).to_have_text("maintenance")
    expect(card).to_contain_text("cooling, back at 14:00")
    operator.get_by_role("button", name="Resume").click()
    expect(card.locator(".badge")).to_have_text("idle")


def test_operators_plan_and_cancel_maintenance_and_users_see_it(
    served: LocalService, opened: OpenPage
) -> None:
    operator = opened(f"{served.url}/#/device/calm", served.token("olga", operator=True))
    user = opened(f"{served.url}/#/device/calm", served.token("una"))
    operator.get_by_role("button", name="Plan maintenance").click()
    dialog = operator.get_by_role("dialog")
    dialog.get_by_label("Begin").fill("2099-05-01T08:30")
    dialog.get_by_label("Hours").fill("3")
    dialog.get_by_label("Reason").fill(HOSTILE)
    dialog.get_by_role("button", name="Plan").click()
    expect(operator.get_by_text(HOSTILE)).to_be_visible()
    (planned,) = served.client("una").call("GET", "/v1/maintenance")
    assert planned["end"] - planned["start"] == 3 * 3600.0
    expect(user.get_by_text(HOSTILE)).to_be_visible()
    assert user.get_by_role("button", name="Cancel it").count() == 0
    assert user.get_by_role("button", name="Plan maintenance").count() == 0
    operator.get_by_role("button", name="Cancel it").click()
    for page in (operator, user):
        expect(page.get_by_text(HOSTILE)).to_be_hidden()
    assert served.client("una").call("GET", "/v1/maintenance") == []


def test_maintenance_under_way_is_cancelled_and_not_resumed(
    served: LocalService, opened: OpenPage
) -> None:
    page = opened(f"{served.url}/#/device/calm", served.token("olga", operator=True))
    begin = time.time()
    form = {"device": "calm", "start": begin, "end": begin + 3600.0, "reason": "a new cable"}
    served.operator().call("POST", "/v1/maintenance", form=form)
    card = page.locator('[data-device="calm"]')
    expect(card.locator(".badge")).to_have_text("maintenance")
    expect(card).to_contain_text("a new cable")
    assert page.get_by_role("button", name="Resume").count() == 0
    page.get_by_role("button", name="Cancel it").click()
    expect(card.locator(".badge")).to_have_text("idle")


def test_maintenance_that_cannot_be_is_refused_in_words(
    served: LocalService, opened: OpenPage
) -> None:
    page = opened(f"{served.url}/#/device/calm", served.token("olga", operator=True))
    page.get_by_role("button", name="Plan maintenance").click()
    page.get_by_role("dialog").get_by_label("Begin").fill("2001-01-01T00:00")
    page.get_by_role("dialog").get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert served.client("una").call("GET", "/v1/maintenance") == []


def test_everybody_sees_levels_that_a_centre_publishes(
    served: LocalService, opened: OpenPage
) -> None:
    page = opened(f"{served.url}/levels", viewport=NARROW)
    expect(page.get_by_role("heading", name="Service levels, last 30 days")).to_be_visible()
    expect(page.get_by_role("rowheader", name="annealer")).to_be_visible()
    assert page.locator("script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_the_page_outlives_a_killed_service_and_shows_nothing_twice(
    tmp_path: Path, opened: OpenPage
) -> None:
    service = LocalService(tmp_path, DEVICES).start()
    try:
        client = service.client("kim")
        page = opened(f"{service.url}/#/device/dev", client.access.token or "")
        before = [client.submit(Burst(0.05, n), "dev", name=f"b{n}").id for n in range(3)]
        for each in before:
            expect(page.locator(f'{row(page, each)}[data-state="done"]')).to_be_visible()
        page.evaluate("window.stayed = true")
        service.kill()
        expect(page.locator("#link")).to_have_text("Reconnecting …")
        with standing_by(service.port, "https://qpu2.example"):
            there = page.get_by_role("link", name="Another service leads now")
            expect(there).to_have_attribute("href", "https://qpu2.example/#/device/dev")
        service.start()
        after = [client.submit(Burst(0.05, n), "dev", name=f"a{n}").id for n in range(3)]
        expect(page.locator("#link")).to_have_text("Live")
        for each in before + after:
            expect(page.locator(f'{row(page, each)}[data-state="done"]')).to_be_visible()
        shown = page.locator(".plainlist [data-task]").evaluate_all(
            "rows => rows.map((row) => row.dataset.task)"
        )
        assert Counter(shown) == Counter(before + after)
        assert page.evaluate("window.stayed") is True
    finally:
        service.stop()


def test_the_keyboard_keeps_its_place_while_tasks_come_and_go(
    served: LocalService, opened: OpenPage
) -> None:
    client = served.client("kay")
    page = opened(f"{served.url}/#/device/dev", served.token("olga", operator=True))

    def one_more() -> str:
        made = client.submit(Burst(0.05, 1), "dev").id
        expect(page.locator(f'{row(page, made)}[data-state="done"]')).to_be_visible()
        return made

    card, link = page.locator('[data-device="dev"]'), page.locator(f"{row(page, one_more())} a")
    for place in (link, card):
        place.focus()
        one_more()
        expect(place).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".detail")).to_be_focused()
    page.keyboard.press("Tab")
    drain = page.get_by_role("button", name="Drain")
    expect(drain).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(drain).to_be_focused()


def test_two_users_see_only_their_own(served: LocalService, opened: OpenPage) -> None:
    tokens = {name: served.token(name, f"account-{name}") for name in ("fay", "gus")}
    pages = {name: opened(f"{served.url}/#/device/calm", token) for name, token in tokens.items()}
    for name in pages:
        served.client(name, f"account-{name}").submit(Burst(0.05, 1), "calm", name=f"of {name}")
    for name, page in pages.items():
        expect(page.locator(".plainlist")).to_contain_text(f"of {name}")
        other = "gus" if name == "fay" else "fay"
        page.wait_for_timeout(1000)  # the other's task has ended by now
        assert f"of {other}" not in page.content()
        assert f"account-{other}" not in page.content()


def test_a_link_opens_the_page_signed_in_behind_a_prefix(
    served: LocalService, opened: OpenPage
) -> None:
    client = served.client("pia")
    link = client.call("POST", "/v1/links")["path"]
    with prefix_proxy(served.port) as url:
        page = opened(url + link.removeprefix("/"))
        expect(page.locator("#link")).to_have_text("Live")
        expect(page.locator("#who")).to_contain_text("pia")
        assert "key=" not in page.url
        (cookie,) = page.context.cookies()
        assert (cookie["path"], cookie["httpOnly"]) == (f"{PREFIX}/", True)
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("link", name="My share").click()
        expect(page.get_by_text("Rank now")).to_be_visible()
        page.goto(f"{url}#/device/calm")
        done = client.submit(Burst(0.05, 1), "calm", name="through the proxy").id
        expect(page.locator(f'{row(page, done)}[data-state="done"]')).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert page.context.cookies() == []


def test_only_the_visible_part_of_a_long_queue_exists(
    served: LocalService, opened: OpenPage
) -> None:
    operator = served.operator()
    operator.call("POST", "/v1/devices/annealer/drain", form={"reason": "a test"})
    client = served.client("lea")
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {}, "BINARY")
    for number in range(120):
        client.submit(model, "annealer", name=f"n{number}")
    page = opened(f"{served.url}/#/device/annealer", client.access.token or "")
    expect(page.get_by_text("120 tasks")).to_be_visible()
    assert page.locator(".room .line").count() < 60
    page.locator(".scroll").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.locator(".room").get_by_text("n119")).to_be_visible()
    assert page.locator(".room .line").count() < 60
    page.get_by_label("Waiting tasks").press("Home")  # the list scrolls by keyboard
    expect(page.locator(".room").get_by_text("n0", exact=True)).to_be_visible()
    for each in client.tasks("queued"):
        each.cancel()
    operator.call("POST", "/v1/devices/annealer/resume")
    expect(page.get_by_text("Nothing waits.")).to_be_visible()


def test_every_view_fits_a_wide_and_a_narrow_window_in_light_and_dark(
    served: LocalService, opened: OpenPage, tmp_path: Path
) -> None:
    """Set QTIDE_SCREENSHOTS to a folder to look at them."""
    folder = Path(os.environ.get("QTIDE_SCREENSHOTS", tmp_path))
    client = served.client("vic", "physics")
    model = dimod.BinaryQuadraticModel({"a": 1.0, "b": -1.0}, {("a", "b"): 0.5}, "BINARY")
    done = client.submit(model, "annealer", name="a" * 200, wait=10).id
    nobody = opened(served.url)
    page = opened(served.url, served.token("olga", operator=True))
    mine = opened(served.url, client.access.token or "")
    card = "main .card"
    views = [
        ("sign-in", nobody, "", card),
        ("levels", nobody, "levels", "table"),
        ("devices", page, "#/device/annealer", ".plainlist .line"),
        ("share", page, "#/share", card),
        ("health", page, "#/health", card),
        ("task", mine, f"#/task/{done}", "text=Best samples"),
        ("own", mine, "#/device/annealer", card),
    ]
    for name, shown, place, ready in views:
        shown.goto(f"{served.url}/{place}")
        shown.locator(ready).first.wait_for()
        for scheme, (words, size) in product(("light", "dark"), SIZES.items()):
            shown.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            shown.set_viewport_size(size)  # type: ignore[arg-type]
            over = shown.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, f"{name} is {over} px too wide"
            cut = shown.locator(".stacks").evaluate_all(CUT)
            assert all(each <= 0 for each in cut), f"{name} has a table that is cut off by {cut} px"
            shown.screenshot(path=folder / f"{name}-{scheme}-{words}.png", full_page=True)
        shown.set_viewport_size(WIDE)  # type: ignore[arg-type]
        assert shown.get_by_role("main").count() == 1
    assert mine.get_by_role("navigation").count() == 1
