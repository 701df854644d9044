"""Owns `windlass top` while it runs: the Textual app, its reading of the store, its end."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import LineFilter

from windlass.app import Windlass
from windlass.app.snapshot import Snapshot, take_snapshot
from windlass.app.stats import Slow
from windlass.cli.top.actions import Action, perform
from windlass.cli.top.screens.base import TopScreen
from windlass.cli.top.screens.main import MainScreen
from windlass.cli.top.screens.plain_signs import PlainSigns, is_unicode
from windlass.cli.top.screens.question import QuestionScreen
from windlass.cli.top.selection import Selection
from windlass.cli.top.signals import ending_by_signals, resume_after_stop
from windlass.core.errors import WindlassError
from windlass.core.stats.live_counts import Trend
from windlass.core.values import figures
from windlass.core.values.text import inert

_SLOW_SECONDS = 5.0
"""Seconds after which a store that has not answered is reported."""
_PAUSE_FACTOR = 4
"""The pause after an answer, as a multiple of the time that the store took for it."""
_NOTE_SECONDS = 4.0
_LAST_STEP_SECONDS = 10.0
"""Seconds that an action has to end its step after the terminal is given back."""
_MAX_PRINTED = 10_000
_NO_ANSWER = "the store has not answered; the last request may or may not have taken effect"


async def run_top(app: Windlass, every: timedelta) -> int:
    """Show the store until the user leaves, and return the exit code."""
    top = TopApp(app, every)
    try:
        with ending_by_signals(top.end):
            await top.run_async(mouse=False)
    finally:
        # After the terminal is given back: a store that hangs may take long.
        await top.finish()
    if top.failure is not None:
        raise top.failure
    return top.return_code or 0


class TopApp(App[None], inherit_bindings=False):
    """The live view of a store."""

    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "top.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "end(130)", priority=True),
        Binding("ctrl+backslash", "end(131)", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
        Binding("ctrl+l", "redraw", priority=True),
    ]

    def __init__(self, app: Windlass, every: timedelta) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.windlass = app
        self.snapshot: Snapshot | None = None
        self.selection = Selection()
        self.note = ""
        self.trouble = ""
        self.failure: BaseException | None = None
        self._every = every.total_seconds()
        self._slow = Slow(app.store)
        self._trend = Trend()
        self._refresh = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._actions: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._printed = ""
        self._results: list[str] = []
        self._last_result = ""

    def get_default_screen(self) -> MainScreen:
        return MainScreen()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters, and one where the terminal has no Unicode."""
        filters = super().get_line_filters()
        return filters if is_unicode(sys.__stderr__) else [*filters, PlainSigns()]

    def on_mount(self) -> None:
        self.begin_capture_print(self, stdout=False)
        if self._driver is not None and not self.is_headless:
            resume_after_stop(self._driver, self.action_redraw)
        self.start(self._watch())

    def on_print(self, event: events.Print) -> None:
        """Keep the end of what libraries print, to print it after the exit."""
        self._printed = (self._printed + event.text)[-_MAX_PRINTED:]

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    # -- tasks and the end ---------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine beside the screen; an error that it raises ends the app."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.failure = self.failure or error
            self.end(1)

    def action_end(self, code: int) -> None:
        self.end(code)

    def end(self, code: int) -> None:
        """Leave with an exit code; the first one counts."""
        if not self._leaving:
            self._leaving = True
            self.exit(return_code=code)

    async def finish(self) -> None:
        """End all tasks, an action after its step, and print what was kept for the end."""
        self._leaving = True
        if self.note and self.note == self._last_result:
            self._results.append(self.note)  # It may have been visible for too short a time.
        if self._actions and (await asyncio.wait(self._actions, timeout=_LAST_STEP_SECONDS))[1]:
            self._results.append(_NO_ANSWER)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sys.stderr.write(self._printed)
        sys.stderr.writelines(f"{inert(result)}\n" for result in self._results)

    # -- the store -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        lost: float | None = None
        # Python 3.11 loses a cancellation at the very moment at which `wait_for` is over.
        while not self._leaving:
            self._refresh.clear()
            began = time.monotonic()
            try:
                self.snapshot = await self._read()
                lost, self.trouble = None, ""
            except (WindlassError, OSError) as error:
                lost = time.monotonic() if lost is None else lost
                since = figures.span(round(time.monotonic() - lost))
                self.trouble = f"store lost for {since}, trying again: {error}"
            self.show()
            took = time.monotonic() - began
            try:
                await asyncio.wait_for(self._refresh.wait(), max(self._every, took * _PAUSE_FACTOR))
            except TimeoutError:
                continue

    async def _read(self) -> Snapshot:
        """Wait for a snapshot, and report an answer that is late."""
        task = asyncio.ensure_future(take_snapshot(self.windlass, self._slow, self._trend))
        began = time.monotonic()
        try:
            while not (await asyncio.wait({task}, timeout=_SLOW_SECONDS))[0]:
                waited = figures.span(round(time.monotonic() - began))
                self.trouble = f"the store has not answered for {waited}"
                self.show()
            return task.result()
        finally:
            task.cancel()

    # -- called by screens ---------------------------------------------------------------------

    def show(self) -> None:
        """Bring all screens up to date, those below a question as well."""
        if not self._leaving:
            for screen in self.screen_stack:
                if isinstance(screen, TopScreen):
                    screen.show()

    def say(self, note: str) -> None:
        """Show a note for some seconds."""
        self.note = note
        if note and not self._leaving:
            self.set_timer(_NOTE_SECONDS, lambda: self._forget(note))
        self.show()

    def _forget(self, note: str) -> None:
        if self.note == note:
            self.say("")

    def ask(self, action: Action | str) -> None:
        """Ask before an action, and perform it after a yes; or say why there is none."""
        if isinstance(action, str):
            self.say(action)
            return

        def answer(yes: bool) -> None:
            if not yes:
                self.say("nothing was changed")
                return
            self._actions.add(task := self.start(self._perform(action)))
            task.add_done_callback(self._actions.discard)

        self.push_screen(QuestionScreen(action.question, answer))

    async def _perform(self, action: Action) -> None:
        try:
            result = await perform(self.windlass, action, self.say, lambda: self._leaving)
        except (WindlassError, OSError, ValueError) as error:
            result = f"that failed: {error}"
        if self._leaving:
            self._results.append(result)
            return
        self._last_result = result
        self.say(result)
        for screen in self.screen_stack:
            if isinstance(screen, TopScreen):
                screen.reload()
        self._slow.forget()
        self._refresh.set()
