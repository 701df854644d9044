"""The form of a payload and the suggestions of a search, in a real browser, with axe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from tests.system.browsing import LOOKS, PROMPT, Shown, watched
from windlass import PermanentError, Windlass

pytestmark = pytest.mark.timeout(600)


class Address(msgspec.Struct):
    city: str
    zip: int | None = None


PAYLOAD = {
    "to": "ada",
    "count": 2,
    "express": True,
    "size": "large",
    "address": {"city": "Atlantis", "zip": None},
    "day": "2026-03-01",
    "lines": [{"city": "Rome"}],
}


def _register(app: Windlass) -> None:
    @app.job(queue="shipping")
    async def ship_order(
        to: str,
        count: int,
        express: bool,
        size: Literal["small", "large"],
        address: Address,
        day: date,
        lines: list[Address] = [],  # noqa: B006
        note: str | None = None,
        billing: Address | None = None,
        weight: float = 1.5,
    ) -> None:
        raise PermanentError(f"nobody lives in {address.city}")


class Order(Shown):
    """The page of an app with a kind whose payload has fields of every type."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        _register(self.app)

    def add(self, **changes: Any) -> UUID:
        """Enqueue an order, and let it die."""

        async def work(app: Windlass) -> UUID:
            _register(app)
            producer = app.producer("ship_order").using(max_retries=0)
            handle = await producer.aenqueue(PAYLOAD | changes)
            await app.arun_worker(burst=True)
            return handle.id

        return UUID(str(self.do(work)))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Order, str]]:
    """Serve the page of an app with a dead order."""
    scene = Order(tmp_path_factory.mktemp("orders"))
    with scene.served() as address:
        yield scene, address


def _is_accessible(page: Page) -> None:
    violations = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []
    over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert over <= 0


@pytest.mark.parametrize("look", LOOKS)
def test_the_form_of_a_payload_is_accessible_and_fits(
    browser: Browser, shown: tuple[Order, str], look: str
) -> None:
    scene, address = shown
    dead = scene.add()
    with watched(browser, address, refused=1, **LOOKS[look]) as page:
        page.goto(f"{address}actions/edit-job?id={dead}")
        expect(page.get_by_role("group", name="address")).to_be_visible(timeout=PROMPT)
        _is_accessible(page)
        page.get_by_label("count", exact=True).fill("two")
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_role("alert")).to_contain_text("'count'", timeout=PROMPT)
        _is_accessible(page)
        page.goto(f"{address}actions/enqueue?kind=ship_order")
        _is_accessible(page)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_payload_is_edited_field_by_field(
    browser: Browser, shown: tuple[Order, str], scripts: bool
) -> None:
    scene, address = shown
    dead = scene.add()
    options = {"java_script_enabled": scripts, "refused": 1}
    with watched(browser, address, **options) as page:
        page.goto(f"{address}actions/edit-job?id={dead}")
        page.get_by_label("to", exact=True).fill("grace")
        page.get_by_label("size", exact=True).select_option("small")
        page.get_by_label("express", exact=True).select_option("false")
        page.get_by_label("day", exact=True).fill("2026-04-02")
        page.get_by_role("group", name="address").get_by_label("city").fill("Rome")
        page.get_by_role("group", name="billing").get_by_label("city", exact=True).fill("Bonn")
        page.get_by_label("note").first.fill("")
        page.get_by_label("If empty, note is").select_option("null")
        page.get_by_label("lines").fill('[{"city": 3}]')
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_label("lines")).to_have_attribute("aria-invalid", "true", timeout=PROMPT)
        expect(page.get_by_label("to", exact=True)).to_have_value("grace")
        expect(page.get_by_label("size", exact=True)).to_have_value('"small"')
        page.get_by_label("lines").fill("[]")
        page.get_by_role("button", name="Redrive").click()
        expect(page.locator("#state")).to_have_text("pending", timeout=PROMPT)

    async def payload(app: Windlass) -> Any:
        job = await app.store.get(dead)
        assert job is not None
        await app.control.acancel(dead)
        return json.loads(job.payload)

    assert scene.do(payload) == {
        "to": "grace",
        "count": 2,
        "express": False,
        "size": "small",
        "address": {"city": "Rome", "zip": None},
        "day": "2026-04-02",
        "lines": [],
        "note": None,
        "billing": {"city": "Bonn"},
    }


def test_suggestions_are_chosen_by_the_keyboard(browser: Browser, shown: tuple[Order, str]) -> None:
    _, address = shown
    with watched(browser, address) as page:
        page.goto(f"{address}jobs")
        box = page.get_by_role("combobox", name="Search")
        box.press_sequentially("st")
        option = page.get_by_role("option", name="state:")
        expect(option).to_be_visible(timeout=PROMPT)
        expect(box).to_have_attribute("aria-expanded", "true")
        expect(page.get_by_role("status")).to_have_text("1 suggestion")
        box.press("ArrowDown")
        expect(option).to_have_attribute("aria-selected", "true")
        expect(box).to_have_attribute("aria-activedescendant", "suggestion-0")
        _is_accessible(page)
        box.press("Enter")
        expect(box).to_have_value("state:")
        expect(page.get_by_role("option", name="dead")).to_be_visible(timeout=PROMPT)
        box.press_sequentially("de")
        expect(page.get_by_role("option")).to_have_count(1, timeout=PROMPT)
        box.press("ArrowUp")
        box.press("Enter")
        expect(box).to_have_value("state:dead ")
        box.press_sequentially("kind:fa")
        expect(page.get_by_role("option", name="fail")).to_be_visible(timeout=PROMPT)
        box.press("Escape")
        expect(page.get_by_role("listbox")).to_be_hidden()
        box.press_sequentially("il")
        box.press("Enter")
        expect(page.locator("#rows tbody tr")).to_have_count(1, timeout=PROMPT)


def test_a_suggestion_is_chosen_by_a_click_within_the_text(
    browser: Browser, shown: tuple[Order, str]
) -> None:
    _, address = shown
    with watched(browser, address, **LOOKS["narrow and dark"]) as page:
        page.goto(f"{address}jobs")
        box = page.get_by_role("combobox", name="Search")
        box.fill('"𝄞" queue:m since:2h')
        for text, suggestion in (("2h", "15m"), (" since:", "mail")):
            # The suggestions for one place must not stay for the next one.
            for _ in text:
                box.press("ArrowLeft")
            box.press("ArrowDown")
            expect(page.get_by_role("option", name=suggestion)).to_be_visible(timeout=PROMPT)
        _is_accessible(page)
        page.get_by_role("option", name="mail").click()
        expect(box).to_have_value('"𝄞" queue:mail since:2h')
        expect(box).to_be_focused()


@pytest.mark.parametrize("answer", ["slow", "failed"])
def test_enter_sends_what_was_typed_after_a_suggestion_was_active(
    browser: Browser, shown: tuple[Order, str], answer: str
) -> None:
    def fail(route: Route) -> None:
        if answer == "failed":
            route.abort()  # Otherwise it is never answered.

    _, address = shown
    with watched(browser, address, refused=None) as page:
        page.goto(f"{address}jobs")
        box = page.get_by_role("combobox", name="Search")
        box.press_sequentially("queue:m")
        expect(page.get_by_role("option", name="mail")).to_be_visible(timeout=PROMPT)
        box.press("ArrowDown")
        page.route("**/suggestions**", fail)
        box.press_sequentially("ai")
        box.press("Enter")
        page.wait_for_url("**/jobs?q=queue%3Amai*", timeout=PROMPT)


def test_without_scripts_the_box_lists_whole_terms(
    browser: Browser, shown: tuple[Order, str]
) -> None:
    _, address = shown
    with watched(browser, address, java_script_enabled=False) as page:
        page.goto(f"{address}jobs")
        expect(page.get_by_label("Search")).to_have_attribute("list", "terms")
        terms = page.locator("#terms option").evaluate_all("each => each.map(one => one.value)")
        assert {"state:dead", "queue:mail", "kind:send_email"} <= set(terms)


@pytest.mark.parametrize("look", LOOKS)
def test_a_search_that_cannot_be_read_marks_its_place(
    browser: Browser, shown: tuple[Order, str], look: str
) -> None:
    _, address = shown
    with watched(browser, address, refused=1, **LOOKS[look]) as page:
        page.goto(f"{address}jobs?q=kind:fail%20stat:dead")
        expect(page.locator("mark")).to_have_text("stat:dead", timeout=PROMPT)
        expect(page.get_by_role("alert")).to_contain_text("did you mean state:")
        box = page.get_by_role("combobox", name="Search")
        expect(box).to_be_focused()
        assert box.evaluate("each => each.selectionStart") == len("kind:fail ")
        _is_accessible(page)
