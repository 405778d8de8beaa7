"""What the live page costs, how soon it shows a change, and how it bears 10,000 queued tasks.

Fifty pages are fifty streams that also ask for figures as the page does, from a process of its own;
the tasks per second without and with them are measured in turn, in the same run. The rest is
measured in a real browser, Debian's Chromium.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles

import urllib3
from claims import Claim, at_least, at_most, conclude
from playwright.sync_api import Page, sync_playwright

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst, encode
from qtide.service.local_service import LocalService
from qtide.service.monitoring import INSERT, KEPT, Activity
from qtide.service.records import Draft, insert
from qtide.service.store import connect
from qtide.service.task import Caller, ServiceTask

DEVICE = '[devices.dev]\nkind = "burst"\npolicy = "fair"\n'
PAGES, CLIENTS = 50, 16
ROUND_S, ROUNDS = 8.0, 3
CHANGES = 60
QUEUED = 10_000
SCROLL_S = 3.0
YEAR = 365 * 86_400
FIGURES_S = 2.0
"""Seconds after which a page asks for its figures again."""


def main() -> None:
    """Measure all four, then conclude."""
    claims = [*costs(), *in_browser(), at_most("history, MB per device and year", growth(), 2.0)]
    conclude("page", claims)


@contextmanager
def served(fill: int = 0) -> Iterator[LocalService]:
    """A service, whose queue may be filled before it starts."""
    with tempfile.TemporaryDirectory() as name:
        service = LocalService(Path(name), DEVICE)
        if fill:
            service.state.mkdir()
            with closing(connect(service.state / "store.sqlite")) as db:
                db.execute("BEGIN")
                for number in range(fill):
                    insert(*_queued(number))(db)
                db.execute("COMMIT")
        with service:
            yield service


def _queued(number: int) -> tuple[ServiceTask, Draft]:
    """A task of an hour for the store; the first occupies the device for as long."""
    payload = encode(Burst(500.0))
    owner = Caller(f"user{number % 40}", f"account{number % 8}")
    task = ServiceTask(
        id=str(uuid.uuid4()),
        caller=owner,
        device="dev",
        name=f"task {number}",
        format=payload.format,
        shots=1,
        seed=0,
        size=1,
        seconds=500.0,
        submitted=time.time(),
    )
    return task, Draft(payload, "")


def costs() -> list[Claim]:
    """The tasks per second with open pages, relative to those without."""
    with served() as service:
        token = service.token("olga", operator=True)
        rates: dict[bool, list[float]] = {False: [], True: []}
        _rate(service, 2.0)
        for _ in range(ROUNDS):
            rates[False].append(_rate(service, ROUND_S))
            with _open_pages(service, token):
                rates[True].append(_rate(service, ROUND_S))
    without, with_pages = median(rates[False]), median(rates[True])
    print(f"tasks per second: {without:.0f} without pages, {with_pages:.0f} with {PAGES}")
    lost = 100 * (1 - with_pages / without)
    return [at_most(f"tasks per second lost to {PAGES} pages, %", lost, 10)]


def _rate(service: LocalService, seconds: float) -> float:
    """The tasks per second that some clients get done."""
    end = time.monotonic() + seconds
    done = [0] * CLIENTS

    def work(number: int) -> None:
        client = service.client(f"user{number}", f"account{number % 4}")
        while time.monotonic() < end:
            client.run(Burst(0.0, 1), "dev")
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(done) / seconds


@contextmanager
def _open_pages(service: LocalService, token: str) -> Iterator[None]:
    """Keep as many streams open, with the requests of their pages, as long as the block runs."""
    process = multiprocessing.get_context("spawn").Process(
        target=_pages, args=(service.url, token), daemon=True
    )
    process.start()
    time.sleep(3.0)
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _pages(url: str, token: str) -> None:
    head = {"Authorization": f"Bearer {token}"}
    pool = urllib3.PoolManager(maxsize=2 * PAGES, block=False)
    paths = ["timeline?span=5min", "summary?span=5min", "queue?limit=100&everybody=true"]

    def stream() -> None:
        with suppress(urllib3.exceptions.HTTPError):
            answer = pool.request("GET", f"{url}/v1/events", headers=head, preload_content=False)
            while answer.read1(65_536):
                pass

    def figures() -> None:
        time.sleep(random.random() * FIGURES_S)
        while True:
            for path in paths:
                with suppress(urllib3.exceptions.HTTPError):
                    pool.request("GET", f"{url}/v1/devices/dev/{path}", headers=head)
            time.sleep(FIGURES_S)

    for _ in range(PAGES):
        for work in (stream, figures):
            threading.Thread(target=work, daemon=True).start()
    threading.Event().wait()


def in_browser() -> list[Claim]:
    """How soon a change is on the page; how a page with a long queue opens and scrolls."""
    path = shutil.which("chromium")
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])) as browser,
    ):
        with served() as service:
            page = browser.new_page()
            _sign_in(page, service, service.token("ada"))
            late = _latencies(page, service.client("ada"))
            page.close()
        with served(QUEUED) as service:
            token = service.token("olga", operator=True)
            page = browser.new_page()
            _sign_in(page, service, token)
            opened = median([_opening(page, service) for _ in range(5)])
            frames = page.evaluate(SCROLL, SCROLL_S * 1000)
    return [
        at_most("a change is on the page after s, p95", quantiles(late, n=20)[-1], 0.5),
        at_most(f"a page with {QUEUED} tasks opens in s", opened, 1.5),
        at_least("frames per second while scrolling", frames, 30),
    ]


def _sign_in(page: Page, service: LocalService, token: str) -> None:
    page.goto(service.url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Live", exact=True).wait_for()


WATCH = """() => {
  window.shown = {};
  new MutationObserver(() => {
    for (const row of document.querySelectorAll('.plainlist [data-state="done"]'))
      window.shown[row.dataset.task] ??= Date.now() / 1000;
  }).observe(document.body, { childList: true, subtree: true, attributes: true });
}"""
SCROLL = """(length) => new Promise((resolve) => {
  const box = document.querySelector(".scroll");
  const began = performance.now();
  let frames = 0;
  const step = (now) => {
    frames += 1;
    box.scrollTop = ((now - began) / length) * (box.scrollHeight - box.clientHeight);
    if (now - began < length) requestAnimationFrame(step);
    else resolve((1000 * frames) / (now - began));
  };
  requestAnimationFrame(step);
})"""


def _latencies(page: Page, client: Client) -> list[float]:
    """Seconds from the end of each task to the row that says so."""
    page.evaluate(WATCH)
    late = []
    for number in range(CHANGES):
        task = client.submit(Burst(0.02, number), "dev", wait=10)
        page.wait_for_function("id => window.shown[id]", arg=task.id)
        late.append(page.evaluate("id => window.shown[id]", task.id) - task.response["ended"])
        time.sleep(random.random() / 5)
    return late


def _opening(page: Page, service: LocalService) -> float:
    """Seconds until a page shows the first rows of its queue."""
    page.goto("about:blank")
    began = time.monotonic()
    page.goto(f"{service.url}/#/device/dev")
    page.locator(".room [data-task]").first.wait_for()
    return time.monotonic() - began


def growth() -> float:
    """Megabytes of the rows that are there after a year, with busy hours and quiet ones."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as name, closing(connect(Path(name) / "db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = (Path(name) / "db").stat().st_size
        db.execute("BEGIN")
        for step, kept in KEPT.items():
            for at in range(min(kept, YEAR), 0, -step):
                made = Activity()
                for _ in range(chance.choice((0, 3, 12))):
                    made.waits[chance.randrange(40)] += chance.randrange(1, 200)
                made.seconds["busy"] = chance.random() * step
                made.seconds["nobody"] = step - made.seconds["busy"]
                made.tasks["done"] = made.waits.total()
                row = (step, 1_800_000_000 - at, "superconducting", made.packed())
                db.execute(INSERT, row)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return ((Path(name) / "db").stat().st_size - before) / 1e6


if __name__ == "__main__":
    main()
