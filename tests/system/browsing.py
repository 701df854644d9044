"""Gives tests a page that is served by a thread, and a browser that watches it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import uvicorn
from playwright.sync_api import Browser, Page

from tests.web.viewing import seeded, shop, with_breaker
from windlass import Windlass
from windlass.web.server import address_of, listen

PROMPT = 60_000
"""Milliseconds within which whatever is prompt is seen, also on a busy machine."""
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 320, "height": 700}},
    "narrow and dark": {"color_scheme": "dark", "viewport": {"width": 320, "height": 700}},
}


class Shown:
    """An app whose page is served by a thread, on a SQLite file that others may change."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.app = shop(**settings)
        self.app.configure(url=f"sqlite:///{directory / 'shop.db'}")
        self.ids: dict[str, UUID] = {}
        self.worker = ""

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the page for the length of a block; yield its address."""
        listening = listen("127.0.0.1", 0, has_login=False)
        started = threading.Event()
        ended: list[Any] = []

        async def run() -> None:
            self.ids = await seeded(self.app)
            await with_breaker(self.app)
            await self.app.control.amark_deploy("v1.2.3")
            self.worker = (await self.app.store.workers())[0].info.id
            page = self.app.web(name="test")
            config = uvicorn.Config(page, log_config=None, lifespan="off")
            server = uvicorn.Server(config)
            ended.append((server, page.state.site, asyncio.get_running_loop()))
            started.set()
            await server.serve([listening])
            await self.app.aclose()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        assert started.wait(60)
        try:
            yield address_of(listening)
        finally:
            (server, site, loop) = ended[0]
            server.should_exit = True
            loop.call_soon_threadsafe(site.watcher.close)
            thread.join(60)

    def do(self, work: Any) -> Any:
        """Do something as another process would, by an app of its own."""

        async def on_own_app() -> Any:
            other = Windlass(self.app.settings.url)
            try:
                return await work(other)
            finally:
                await other.aclose()

        # In a thread: playwright runs an event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(on_own_app())).result()


@contextmanager
def watched(
    browser: Browser, address: str, *, refused: int | None = 0, **options: Any
) -> Iterator[Page]:
    """Open a page; at the end, its console was silent, and it asked no other host.

    Chromium says in the console that an answer was `refused`, so many times; None: any number.
    """
    said: list[str] = []
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith(address) else said.append(request.url),
        )
        yield page
    assert [each for each in said if not each.startswith("Failed to load resource")] == []
    assert refused is None or len(said) == refused
