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
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.system.debian import program
from tests.system.test_web_page import LOOKS, PROMPT, Shown, watched
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
def browser() -> Iterator[Browser]:
    """Give Debian's Chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(program("chromium")))
        yield chromium
        chromium.close()


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
