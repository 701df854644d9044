"""Owns a user of `windlass top` for tests, who presses keys and reads the screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from textual.pilot import Pilot
from textual.widgets import Static

from windlass.app import Windlass
from windlass.cli.top.app import TopApp
from windlass.cli.top.screens.question import QuestionScreen

_MAX_WAIT_SECONDS = 30.0


class Viewer:
    """Somebody before the screen."""

    def __init__(self, top: TopApp, pilot: Pilot[None]) -> None:
        self.top = top
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Press the keys of a text."""
        await self._pilot.press(*text)

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the window."""
        await self._pilot.resize_terminal(width, height)

    @property
    def text(self) -> str:
        """The text on the screen; a question alone, if there is one."""
        screen = self.top.screen
        if isinstance(screen, QuestionScreen):
            return str(screen.query_one("#question", Static).content)
        strips = screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    @property
    def selected(self) -> str:
        """The line of the selected row."""
        return next(line for line in self.text.splitlines() if line.startswith("▸"))

    async def sees(self, *parts: str) -> None:
        """Wait until texts are on the screen."""
        await self.until(lambda: all(part in self.text for part in parts), parts)

    async def until(self, check: Callable[[], object], sought: object = "") -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while not check():
            assert time.monotonic() < deadline, f"not seen: {sought}\n{self.text}"
            await self._pilot.pause(0.02)


def view(
    app: Windlass,
    script: Callable[[Viewer], Awaitable[None]],
    *,
    columns: int = 80,
    lines: int = 24,
) -> int | None:
    """Run `top` on an app's store without a terminal, and return its exit code if it has ended."""

    async def run() -> int | None:
        top = TopApp(app, timedelta(milliseconds=500))
        try:
            async with top.run_test(size=(columns, lines)) as pilot:
                viewer = Viewer(top, pilot)
                await viewer.sees("1 queues")
                await script(viewer)
        finally:
            await top.finish()
            await app.aclose()
        return top.return_code

    return asyncio.run(run())
