"""Live pages in a real browser: what comes, goes or is out of date is seen, and never guessed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.app_on_store import serving_in_a_thread
from tests.system.browsing import LOOKS, PROMPT, Shown, watched
from tests.web.viewing import TOKEN
from windlass import SyncContext, Windlass

STALE = "Not up to date since"
SLOW_SECONDS = 0.4
SLOW_PAGES = 3
pytestmark = pytest.mark.timeout(600)


async def add(app: Windlass, count: int = 1, **options: Any) -> list[UUID]:
    """Enqueue jobs that no worker takes; return their ids, the oldest first."""
    producer = app.producer("charge").using(**options)
    handles = await app.aenqueue_many([producer.draft({"cents": n}) for n in range(count)])
    return [each.id for each in handles]


def test_an_empty_list_gets_its_first_job(browser: Browser, tmp_path: Path) -> None:
    """Prevents: a list that is left open says for ever that no job matches."""
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}jobs?q=key:first")
        expect(page.get_by_text("No job matches")).to_be_visible(timeout=PROMPT)
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        (job,) = scene.do(lambda app: add(app, key="first"))
        expect(page.locator(f"#job-{job}")).to_contain_text("pending", timeout=PROMPT)
        expect(page.get_by_text("No job matches")).to_have_count(0)
        expect(page.locator("#newer")).to_be_hidden()
        assert Axe().run(page).response["violations"] == []


def test_the_numbers_of_states_and_what_is_paused_come_and_go(
    browser: Browser, tmp_path: Path
) -> None:
    """Prevents: parts that a page did not have when it was opened never appear."""
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}jobs")
        states = page.get_by_role("navigation", name="States")
        tab = states.get_by_role("link", name="Pending")
        expect(tab).to_have_text("Pending 1", timeout=PROMPT)
        scene.do(lambda app: add(app, 2))
        expect(tab).to_have_text("Pending 3", timeout=PROMPT)
        page.goto(f"{address}queues")
        expect(page.locator("#pauses")).to_be_hidden(timeout=PROMPT)
        scene.do(lambda app: app.control.apause(kind="charge"))
        expect(page.locator("#pauses")).to_contain_text("kind charge", timeout=PROMPT)
        scene.do(lambda app: app.control.aresume(kind="charge"))
        expect(page.locator("#pauses")).to_be_hidden(timeout=PROMPT)


def test_rows_that_left_a_list_say_so_and_older_ones_are_not_newer(
    browser: Browser, tmp_path: Path
) -> None:
    """Prevents: a job that ended is listed as pending, and one that moved up counts as newer."""
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        jobs = scene.do(lambda app: add(app, 60))
        page.goto(f"{address}jobs?q=state:pending")
        expect(page.locator("#rows tbody tr")).to_have_count(50, timeout=PROMPT)
        older = page.get_by_role("link", name="Older").get_attribute("href")

        async def cancel(app: Windlass) -> None:
            for job in jobs[-5:]:
                await app.control.acancel(job)

        scene.do(cancel)
        for job in jobs[-5:]:
            row = page.locator(f"#job-{job}")
            expect(row).to_contain_text("left this list", timeout=PROMPT)
            expect(row).not_to_contain_text("pending")
        expect(page.locator("#rows tbody tr")).to_have_count(50)
        expect(page.get_by_text("left this list")).to_have_count(5)
        expect(page.locator("#newer")).to_be_hidden()
        assert Axe().run(page).response["violations"] == []

        scene.do(lambda app: add(app, 2))
        expect(page.locator("#newer")).to_have_text("2 newer", timeout=PROMPT)
        assert page.get_by_role("link", name="Older").get_attribute("href") == older


def test_an_old_job_that_joins_a_list_is_counted_further_down(
    browser: Browser, tmp_path: Path
) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}jobs?q=state:cancelled")
        expect(page.locator("#rows tbody tr")).to_have_count(1, timeout=PROMPT)
        scene.do(lambda app: app.control.acancel(scene.ids["pending"]))
        expect(page.locator("#newer")).to_have_text("1 further down", timeout=PROMPT)
        page.locator("#newer").click()
        expect(page.locator("#rows tbody tr")).to_have_count(2, timeout=PROMPT)


def test_a_page_that_cannot_be_refreshed_says_so_until_it_can(
    browser: Browser, tmp_path: Path
) -> None:
    """Prevents: old figures under the word Live."""
    scene = Shown(tmp_path)
    with scene.served() as address, browser.new_context(**LOOKS["narrow"]) as context:
        page = context.new_page()
        page.goto(f"{address}queues")
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        page.route(f"{address}queues", lambda route: route.fulfill(status=503))
        scene.do(lambda app: app.control.apause("mail"))
        expect(page.locator("#live-word")).to_contain_text(STALE, timeout=PROMPT)
        expect(page.locator("#live-login")).to_be_hidden()
        assert Axe().run(page).response["violations"] == []
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        page.unroute(f"{address}queues")
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        expect(page.locator("#queues")).to_contain_text("paused")


def test_a_page_whose_server_ended_says_so(browser: Browser, tmp_path: Path) -> None:
    scene = Shown(tmp_path)
    with browser.new_context() as context, ExitStack() as serving:
        address = serving.enter_context(scene.served())
        page = context.new_page()
        with page.expect_response("**/events"):
            page.goto(address)
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        serving.close()
        expect(page.locator("#live-word")).to_contain_text(STALE, timeout=PROMPT)


def test_a_page_whose_login_ended_leads_to_the_login(browser: Browser, tmp_path: Path) -> None:
    scene = Shown(tmp_path, web_token=TOKEN)
    # The stream may ask once more, and be refused, before the page leads to the login.
    with scene.served() as address, watched(browser, address, refused=None) as page:
        page.goto(f"{address}queues")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        page.context.clear_cookies()
        scene.do(lambda app: app.control.apause("mail"))
        expect(page.locator("#live-word")).to_contain_text(STALE, timeout=PROMPT)
        assert Axe().run(page).response["violations"] == []
        page.get_by_role("link", name="Log in again").click()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("h1")).to_have_text("Queues", timeout=PROMPT)
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)


def test_a_page_waits_ten_times_as_long_as_its_last_answer_took(
    browser: Browser, tmp_path: Path
) -> None:
    """Prevents: a costly search that is left open keeps the store busy all the time."""
    scene = Shown(tmp_path)

    def answer_slowly(route: Route) -> None:
        time.sleep(SLOW_SECONDS)
        route.continue_()

    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}jobs")
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        page.route(f"{address}jobs", answer_slowly)
        while len(refreshes := refreshes_of(page, f"{address}jobs")) < SLOW_PAGES:
            scene.do(add)
            page.wait_for_timeout(200)
        for (start, end), (following, _) in pairwise(refreshes):
            assert following - end >= 9.9 * (end - start)


def refreshes_of(page: Page, address: str) -> list[tuple[float, float]]:
    """Return when the slow refreshes of a page began and ended, in its own milliseconds."""
    found = page.evaluate(
        """performance.getEntriesByType("resource").map(
            (each) => [each.name, each.startTime, each.responseEnd])"""
    )
    ended = [(start, end) for name, start, end in found if name == address and end]
    return [each for each in ended if each[1] - each[0] >= SLOW_SECONDS * 1000]


class Reporting:
    """A worker of its own, whose handler reports progress, waits, and reports more."""

    def __init__(self, url: str) -> None:
        self.app = app = Windlass(url)
        self.go_on = threading.Event()
        self._end = threading.Event()

        @app.job(queue="told")
        def report(ctx: SyncContext) -> None:
            ctx.progress(0.25, "a quarter")
            assert self.go_on.wait(600)
            ctx.progress(0.5, "half")
            assert self._end.wait(600)

        self._report = report

    @contextmanager
    def running(self) -> Iterator[UUID]:
        """Run a job that reports its progress, for the length of a block."""
        # In a thread: playwright runs an event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            with serving_in_a_thread(self.app, queues=["told"]):
                handle = thread.submit(self._report.enqueue).result()
                try:
                    yield handle.id
                finally:
                    self.go_on.set()
                    self._end.set()
                    thread.submit(handle.result, "60s").result()
            thread.submit(self.app.close).result()


def test_the_page_of_a_running_job_follows_its_progress(browser: Browser, tmp_path: Path) -> None:
    """Prevents: one long job reports progress, and its page shows it only when others end."""
    scene = Shown(tmp_path)
    with scene.served() as address:
        reporting = Reporting(scene.app.settings.url)
        with reporting.running() as job, watched(browser, address) as page:
            page.goto(f"{address}jobs/{job}")
            expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
            story = page.locator("#story")
            for _ in range(60):
                if "25% a quarter" in story.inner_text():
                    break
                page.wait_for_timeout(500)
                page.reload()
            expect(story).to_contain_text("25% a quarter")
            reporting.go_on.set()
            expect(story).to_contain_text("50% half", timeout=PROMPT)
