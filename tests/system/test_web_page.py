"""The web page in a real browser: every page and action, with axe, in light, dark and narrow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.support.app_on_store import serving_in_a_thread
from tests.system.browsing import LOOKS, PROMPT, Shown, watched
from tests.system.debian import program
from tests.web.viewing import TOKEN
from windlass import Handle, State, SyncContext, Windlass
from windlass.core.jobs.bulk import name_of
from windlass.worker.services.bulk_operations import BulkOperations

PAGES = [
    "",
    "jobs",
    "errors",
    "kinds",
    "queues",
    "workers",
    "flows",
    "schedules",
    "limits",
    "store",
    "audit",
]
pytestmark = pytest.mark.timeout(600)


class Streaming:
    """A worker of its own, whose handler streams some chunks, waits, and streams the rest."""

    def __init__(self, url: str) -> None:
        self.app = app = Windlass(url)
        self._gate = threading.Event()
        self._handle: Handle[Any] | None = None

        @app.job(queue="told")
        def tell(ctx: SyncContext, first: list[Any], rest: list[Any]) -> None:
            for chunk in first:
                ctx.stream(chunk)
            assert self._gate.wait(600)
            for chunk in rest:
                ctx.stream(chunk)

        self._tell = tell

    @contextmanager
    def running(self, first: list[Any], rest: list[Any]) -> Iterator[UUID]:
        """Run a job that streams, for the length of a block."""
        # In a thread: playwright runs an event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            with serving_in_a_thread(self.app, queues=["told"]):
                self._handle = thread.submit(self._tell.enqueue, first, rest).result()
                try:
                    yield self._handle.id
                finally:
                    self.go_on()
                    thread.submit(self._handle.result, "60s").result()
            thread.submit(self.app.close).result()

    def go_on(self) -> None:
        """Let the handler stream the rest."""
        self._gate.set()

    def wait_for_chunks(self, number: int) -> None:
        """Wait until the store has so many chunks; after the last of them, until the job ended."""

        def listen() -> None:
            assert self._handle is not None
            for heard, _ in enumerate(self._handle.stream(timeout="60s"), 1):
                if heard == number and not self._gate.is_set():
                    return

        with ThreadPoolExecutor(1) as thread:
            thread.submit(listen).result()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shown, str]]:
    """Serve the page of an app with jobs in every state."""
    scene = Shown(tmp_path_factory.mktemp("shop"))
    with scene.served() as address:
        yield scene, address


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_accessible_fits_and_is_silent(
    browser: Browser, shown: tuple[Shown, str], look: str
) -> None:
    scene, address = shown
    ids = scene.ids
    own = [*(f"jobs/{each}" for each in ids.values()), f"flows/{ids['flow']}", "jobs?q=state:dead"]
    own += [
        "kinds/fail",
        "kinds/send_email",
        "queues/mail",
        "queues/default",
        f"workers/{scene.worker}",
        "kinds/unknown",
    ]
    asked = [f"actions/edit-job?id={ids['dead']}", "actions/set-limit?name=gpu"]
    with watched(browser, address, refused=1, **LOOKS[look]) as page:
        for path in (*PAGES, *own, *asked):
            page.goto(address + path)
            expect(page.locator("h1")).to_be_visible(timeout=PROMPT)
            violations = Axe().run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == [], path
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, f"{path} is wider than the screen"


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_reason_of_a_job_has_its_remedy_as_a_button(
    browser: Browser, tmp_path: Path, scripts: bool
) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address:
        scene.do(lambda app: app.control.apause("default"))
        with watched(browser, address, java_script_enabled=scripts) as page:
            page.goto(f"{address}jobs/{scene.ids['pending']}")
            page.locator("#why").get_by_role("link", name="Resume queue default").click()
            expect(page.locator("code")).to_contain_text("windlass queues resume default")
            page.get_by_role("button", name="Resume").click()
            expect(page.get_by_role("status")).to_contain_text("no longer paused", timeout=PROMPT)
        assert not scene.do(lambda app: app.control.apaused())


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_dead_job_is_edited_and_redriven(browser: Browser, tmp_path: Path, scripts: bool) -> None:
    scene = Shown(tmp_path)
    options = {"java_script_enabled": scripts, "refused": 1}
    with scene.served() as address, watched(browser, address, **options) as page:
        page.goto(f"{address}jobs/{scene.ids['dead']}")
        page.get_by_role("link", name="Edit payload", exact=True).click()
        page.get_by_label("number").fill("seven")
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_role("alert")).to_be_visible(timeout=PROMPT)
        expect(page.get_by_label("number")).to_have_value("seven")
        page.get_by_label("number").fill("8")
        page.get_by_role("button", name="Redrive").click()
        expect(page.locator("#state")).to_have_text("pending", timeout=PROMPT)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_kind_a_queue_and_a_worker_have_pages_that_lead_to_each_other(
    browser: Browser, tmp_path: Path, scripts: bool
) -> None:
    scene = Shown(tmp_path)
    with (
        scene.served() as address,
        watched(browser, address, java_script_enabled=scripts) as page,
    ):
        page.goto(f"{address}kinds")
        page.get_by_role("link", name="send_email", exact=True).click()
        expect(page.locator("h1")).to_contain_text("send_email", timeout=PROMPT)
        page.locator("#facts").get_by_role("link", name="mail", exact=True).click()
        expect(page.locator("h1")).to_contain_text("mail", timeout=PROMPT)
        page.get_by_role("link", name="Pause mail").click()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("link", name="mail", exact=True).first.click()
        expect(page.locator("#state")).to_have_text("paused", timeout=PROMPT)
        page.goto(f"{address}workers")
        page.get_by_role("link", name=scene.worker).click()
        page.locator("#serves").get_by_role("link", name="charge").click()
        expect(page.locator("h1")).to_contain_text("charge", timeout=PROMPT)
        expect(page.locator("#limits")).to_contain_text("stripe")


def test_a_group_is_redriven_and_a_search_finds_it(browser: Browser, tmp_path: Path) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}errors")
        page.get_by_role("link", name="Redrive").first.click()
        expect(page.get_by_text("1 job affected")).to_be_visible(timeout=PROMPT)
        page.get_by_label("Reason").fill("fixed")
        page.get_by_role("button", name="Redrive them").click()
        expect(page.get_by_text("is started: 1 job to redrive")).to_be_visible(timeout=PROMPT)
        expect(page.get_by_text("the operation waits for one")).to_be_visible(timeout=PROMPT)
        scene.do(lambda app: _carry_on(app, UUID(page.url.partition("/bulk/")[2][:36])))
        page.goto(page.url)
        expect(page.locator("#state")).to_have_text("completed", timeout=PROMPT)
        page.goto(f"{address}jobs")
        page.get_by_label("Search").fill("kind:fail state:pending")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("#rows tbody tr")).to_have_count(1, timeout=PROMPT)


async def _carry_on(app: Windlass, operation: UUID) -> None:
    """Do the steps of a bulk operation, as a worker does."""
    service = BulkOperations(app.store)
    await service.forget([name_of(operation)])
    await service.round()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_stream_of_a_job_is_shown(browser: Browser, tmp_path: Path, scripts: bool) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address:
        told = Streaming(scene.app.settings.url)
        with (
            told.running(["<b>one</b> ", "two "], ["three ", {"row": 4}]) as job,
            watched(browser, address, java_script_enabled=scripts) as page,
        ):
            page.goto(f"{address}jobs/{job}")
            log = page.get_by_role("log")
            if not scripts:
                told.wait_for_chunks(2)
                page.reload()
            expect(log).to_have_text("<b>one</b> two", timeout=PROMPT)
            told.go_on()
            if not scripts:
                told.wait_for_chunks(4)
                # What the page read is shared for a second, so the next load may show it again.
                while "the last" not in page.locator("[data-stream-note]").inner_text():
                    page.reload()
            expect(log).to_have_text('<b>one</b> two three {"row":4}', timeout=PROMPT)
            expect(page.locator("[data-stream-note]")).to_contain_text("the last", timeout=PROMPT)
            if scripts:
                assert Axe().run(page).response["violations"] == []


def test_the_stream_of_a_job_is_shown_in_many_tabs(browser: Browser, tmp_path: Path) -> None:
    """Prevents: streams take all connections that a browser has for a host, and pages hang."""
    scene = Shown(tmp_path)
    with scene.served() as address:
        told = Streaming(scene.app.settings.url)
        with told.running(["one "], ["two"]) as job, browser.new_context() as context:
            pages = [context.new_page() for _ in range(8)]
            for page in pages:
                page.goto(f"{address}jobs/{job}", timeout=PROMPT)
                expect(page.get_by_role("log")).to_have_text("one", timeout=PROMPT)
            told.go_on()
            for page in pages:
                page.bring_to_front()
                expect(page.get_by_role("log")).to_have_text("one two", timeout=PROMPT)


def test_a_page_lives_and_can_be_paused(browser: Browser, tmp_path: Path) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(address)
        expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
        scene.do(lambda app: app.control.apause("mail"))
        expect(page.locator("#alarms")).to_contain_text("queue mail is paused", timeout=PROMPT)
        page.locator("#live").click()
        expect(page.locator("#live-word")).to_have_text("Paused")
        page.reload()
        expect(page.locator("#live-word")).to_have_text("Paused", timeout=PROMPT)


def test_rows_of_a_listing_stay_and_newer_ones_are_counted(
    browser: Browser, tmp_path: Path
) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}jobs")
        first = page.locator("#rows tbody tr").first.get_attribute("id")

        async def add(app: Windlass) -> None:
            producer = app.producer("send_email")
            await app.aenqueue_many([producer.draft({"to": str(n)}) for n in range(3)])

        scene.do(add)
        expect(page.locator("#newer")).to_have_text("3 newer", timeout=PROMPT)
        assert page.locator("#rows tbody tr").first.get_attribute("id") == first
        page.locator("#newer").click()
        expect(page.locator("#rows tbody tr").first).not_to_have_attribute("id", first or "")


def test_nothing_changes_under_somebody_who_types(browser: Browser, tmp_path: Path) -> None:
    scene = Shown(tmp_path)
    with scene.served() as address, watched(browser, address) as page:
        page.goto(f"{address}jobs")
        page.get_by_label("Search").press_sequentially("kind:")

        async def cancel(app: Windlass) -> None:
            await app.control.acancel(scene.ids["pending"])

        scene.do(cancel)
        row = page.locator(f"#job-{scene.ids['pending']}")
        page.wait_for_timeout(2_500)
        expect(row).to_contain_text(State.PENDING.value)
        page.get_by_label("Search").blur()
        expect(row).to_contain_text(State.CANCELLED.value, timeout=PROMPT)
        expect(page.get_by_label("Search")).to_have_value("kind:")


def test_the_seventh_tab_opens(browser: Browser, shown: tuple[Shown, str]) -> None:
    _, address = shown
    with browser.new_context() as context:
        for _ in range(8):
            page = context.new_page()
            page.goto(address, timeout=PROMPT)
            expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)


def test_under_a_name_without_tls_the_page_polls(browser: Browser, tmp_path: Path) -> None:
    scene = Shown(tmp_path, web_token=TOKEN)
    with scene.served() as address:
        port = address.rstrip("/").rpartition(":")[2]
        named = f"http://jobs.internal:{port}/"
        chromium = browser.browser_type.launch(
            executable_path=str(program("chromium")),
            args=["--host-resolver-rules=MAP jobs.internal 127.0.0.1"],
        )
        with watched(chromium, named) as page:
            page.goto(named)
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Log in").click()
            expect(page.locator("#live-word")).to_have_text("Live", timeout=PROMPT)
            scene.do(lambda app: app.control.apause("mail"))
            expect(page.locator("#alarms")).to_contain_text("mail is paused", timeout=PROMPT)
        chromium.close()
