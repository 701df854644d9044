"""The documentation site in a real browser: it asks no other host, fits, and can be searched."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.system.browsing import LOOKS, PROMPT, watched

SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = ("index.html", "guarantees.html", "reference/options.html", "reference/api/app.html")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not SITE.exists(), reason="make docs builds the site"),
]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *args: object) -> None: ...


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the site, and give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("look", LOOKS)
def test_pages_ask_no_other_host_and_fit_the_window(
    browser: Browser, address: str, look: str
) -> None:
    with watched(browser, address, **LOOKS[look]) as page:
        for path in PAGES:
            page.goto(address + path)
            expect(page.locator("h1").first).to_be_visible(timeout=PROMPT)
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, path
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            is_dark = sum(int(each) for each in background[4:-1].split(",")[:3]) < 3 * 128
            assert is_dark == ("dark" in look), background


def find(page: Page, words: str) -> None:
    """Search for some words, and open the first result."""
    page.get_by_role("button", name="Search").first.click()
    page.get_by_placeholder("Search").last.fill(words)
    expect(page.get_by_text(re.compile(r"^\d+ results$"))).to_be_visible(timeout=PROMPT)
    expect(page.get_by_placeholder("Search").last).to_have_value(words)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("served", [True, False], ids=["over HTTP", "from disk"])
def test_a_page_is_found_by_the_search(browser: Browser, address: str, *, served: bool) -> None:
    place = address if served else f"{SITE.as_uri()}/"
    with watched(browser, place, **LOOKS["light"]) as page:
        page.goto(f"{place}index.html")
        find(page, "dead letters")
        expect(page.locator("h1").first).to_contain_text("Dead letters", timeout=PROMPT)
