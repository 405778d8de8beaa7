"""Debian's Chromium for tests of pages; it is installed if that is possible."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.backends.slurm.fixtures import install


@pytest.fixture(scope="session")
def chromium() -> str:
    missing = "pages are tested in Chromium: apt-get install chromium, or sudo make page-packages"
    if shutil.which("chromium") is None:
        install(missing, ["chromium"])
    return shutil.which("chromium") or pytest.fail(missing, pytrace=False)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser per module: while it is open, this thread cannot run an event loop of its own."""
    with sync_playwright() as playwright:
        # a browser that root starts in a container has no sandbox to use
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
