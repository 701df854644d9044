"""Owns `windlass top` while it runs: looks at the store time and again, draws, and heeds keys."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from rich.console import Console, RenderableType
from rich.text import Text

from windlass.app import Windlass
from windlass.app.stats import Slow, gather_stats
from windlass.cli.discretion import redaction_of
from windlass.cli.screen import figures
from windlass.cli.screen.details import details, job_details
from windlass.cli.screen.frame import Scene, frame
from windlass.cli.screen.levers import pull
from windlass.cli.screen.paint import Painter
from windlass.cli.screen.panels import Looked, Row
from windlass.cli.screen.tail import Tail
from windlass.cli.screen.terminal import Terminal
from windlass.cli.screen.view import Lever, Sheet, View, Wish, press, rows_of
from windlass.core.errors import WindlassError
from windlass.core.text import inert

_SLOW = 5.0
"""Seconds after which it is said that the store has not answered yet."""
_REST = 4
"""How many times as long as a look took the store is left alone after it."""
_NOTED = 4.0
"""Seconds after which what was said of a key makes way for what is below it."""
_LAST_STEP = 10.0
"""Seconds that a change which was begun has to come to an end of a step when somebody leaves."""
_LOOKING = Text("looking…", "dim")
_NOT_KNOWN = "the store has not answered: what was asked of it last may be done, or not"


async def look(app: Windlass, slow: Slow | None = None) -> Looked:
    """Look at the store once, or time and again with the same `slow`.

    Raises:
        WindlassError: it does not answer.
    """
    stats = await gather_stats(app.store, redaction_of(app), slow=slow)
    pauses = await app.control.paused()
    return Looked(stats=stats, pauses=pauses, location=app.store.location)


class Live:
    """The picture of a store, for as long as somebody looks at it."""

    def __init__(self, app: Windlass, every: timedelta) -> None:
        self._app = app
        self._every = every.total_seconds()
        self._slow = Slow(app.store)
        self._view = View()
        self._looked: Looked | None = None
        self._trouble = ""
        self._noted = 0.0
        self._sheets: dict[str, RenderableType] = {}
        self._again = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inspecting: asyncio.Task[None] | None = None
        self._looking: Sheet = "row"
        self._pulling: set[asyncio.Task[None]] = set()
        self._last_words: list[str] = []
        self._painter = Painter(sys.stdout.encoding or "utf-8")

    async def run(self) -> int:
        """Draw until somebody has had enough; return the exit code."""
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        said = Tail()
        try:
            # What is said in between, as by a library that warns, would tear the picture.
            with redirect_stderr(said):
                self._terminal = Terminal(
                    pressed=self._press, wanted=self._redraw, ended=self._finish
                )
                with self._terminal:
                    self._start(self._watch())
                    return await self._end
        finally:
            # After the terminal is given back: a store that hangs may take its time.
            await self._stop()
            sys.stderr.write(said.end)
            sys.stderr.writelines(f"{inert(words)}\n" for words in self._last_words)

    # -- what happens --------------------------------------------------------------------------

    def _press(self, key: str) -> None:
        with self._watched():
            self._heed(key)

    def _heed(self, key: str) -> None:
        if key == "redraw":
            self._painter.forget()
        rows = rows_of(self._looked, self._view.filter)
        if self._view.sheet is None:
            self._sheets.clear()
        self._view, wish = press(self._view, key, rows, self._looked)
        self._noted = time.monotonic()
        if wish is not None and wish.quit:
            self._finish(0)
        self._heed_inspection(wish)
        if wish is not None and wish.pull is not None:
            self._pulling.add(task := self._start(self._pull(wish.pull)))
            task.add_done_callback(self._pulling.discard)
        self._draw()

    def _heed_inspection(self, wish: Wish | None) -> None:
        """Begin to look into something, and end a look that nobody waits for any more.

        It would end up on the sheet of something else.
        """
        anew = wish is not None and (wish.inspect is not None or wish.show is not None)
        if self._inspecting is not None and (anew or self._view.sheet != self._looking):
            self._inspecting.cancel()
            self._inspecting = None
        if wish is not None and wish.inspect is not None:
            self._looking = "row"
            self._inspecting = self._start(self._inspect(wish.inspect))
        elif wish is not None and wish.show is not None:
            self._looking = "job"
            self._sheets.pop("job", None)
            self._inspecting = self._start(self._show(wish.show))

    def _redraw(self, fresh: bool) -> None:
        with self._watched():
            if fresh:
                self._painter.forget()
            self._draw()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """End with what a terminal's own event raises, instead of standing still."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends with the terminal.
            self._fail(error)

    def _finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    def _fail(self, error: BaseException) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Notice what nobody foresaw: the terminal is given back first, and then it is told."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._fail(error)

    async def _stop(self) -> None:
        """End all that goes on; what changes the store ends its step, and it is said how far."""
        if self._pulling and (await asyncio.wait(self._pulling, timeout=_LAST_STEP))[1]:
            self._last_words.append(_NOT_KNOWN)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the store -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        lost: float | None = None
        # Python 3.11 loses a cancellation at the very moment at which `wait_for` is over.
        while not self._end.done():
            self._again.clear()
            began = time.monotonic()
            try:
                self._looked = await self._patiently(look(self._app, self._slow))
                lost, self._trouble = None, ""
            except (WindlassError, OSError) as error:
                lost = time.monotonic() if lost is None else lost
                since = figures.span(round(time.monotonic() - lost))
                self._trouble = f"store lost for {since}, trying again: {error}"
            self._draw()
            took = time.monotonic() - began
            try:
                await asyncio.wait_for(self._again.wait(), max(self._every, took * _REST))
            except TimeoutError:
                continue

    async def _patiently(self, work: Coroutine[Any, Any, Looked]) -> Looked:
        """Wait for an answer, and say so when it takes long."""
        task = asyncio.ensure_future(work)
        began = time.monotonic()
        try:
            while not (await asyncio.wait({task}, timeout=_SLOW))[0]:
                waited = figures.span(round(time.monotonic() - began))
                self._trouble = f"the store has not answered for {waited}"
                self._draw()
            return task.result()
        finally:
            task.cancel()

    async def _inspect(self, row: Row) -> None:
        try:
            found = await details(self._app, row)
            self._sheets["row"] = found.body
            self._view = replace(self._view, jobs=found.jobs, job=0)
        except (WindlassError, OSError) as error:
            self._sheets["row"] = Text(f"the store does not answer: {error}", "red")
        self._draw()

    async def _show(self, job: UUID) -> None:
        try:
            shown, self._sheets["job"] = await job_details(self._app, job)
            self._view = replace(self._view, shown=shown)
        except (WindlassError, OSError) as error:
            self._sheets["job"] = Text(str(error), "red")
        self._draw()

    async def _pull(self, lever: Lever) -> None:
        try:
            told = await pull(self._app, lever, self._say, self._end.done)
        except (WindlassError, OSError, ValueError) as error:
            told = f"that failed: {error}"
        self._say(told)
        if self._end.done():
            self._last_words.append(told)
        shown = self._view.shown
        if self._view.sheet == "job" and shown is not None and str(shown.id) == lever.name:
            self._heed_inspection(Wish(show=UUID(lever.name)))
        self._slow.forget()
        self._again.set()

    def _say(self, note: str) -> None:
        self._view = replace(self._view, note=note)
        self._noted = time.monotonic()
        self._draw()

    # -- the picture ---------------------------------------------------------------------------

    def _draw(self) -> None:
        if self._terminal.busy or self._end.done():
            return
        if self._view.note and time.monotonic() - self._noted > _NOTED:
            self._view = replace(self._view, note="")
        width, height = self._terminal.size
        scene = Scene(
            looked=self._looked,
            view=self._view,
            sheet=_lines(self._sheets.get(self._view.sheet or "", _LOOKING), width),
            trouble=self._trouble,
        )
        self._terminal.send(self._painter.paint(frame(scene, width, height), width))


def _lines(sheet: RenderableType, width: int) -> list[Text]:
    console = Console(file=io.StringIO(), width=max(width, 1), markup=False, highlight=False)
    return [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for line in console.render_lines(sheet, pad=False)
    ]
