"""Owns sheets: screens with a text that is scrolled, below the load and the worst alarm."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import ClassVar

from rich.console import Console, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from windlass.cli.top.content.picture import head, shortened_alarms
from windlass.cli.top.screens.base import MOVES, Lines, TopScreen, keys
from windlass.core.errors import WindlassError


class Sheet(TopScreen):
    """A text over the panels."""

    max_alarms = 1
    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVES,
        *keys(("escape,q,left,backspace,question_mark,exclamation_mark", "close")),
    ]

    def compose(self) -> ComposeResult:
        yield Lines(id="head")
        with VerticalScroll(id="scroll", can_focus=False):
            yield Lines(id="text")
        yield Lines(id="foot")

    def body(self) -> RenderableType:
        raise NotImplementedError

    def key_effects(self) -> Sequence[tuple[str, str]]:
        return (("esc", "back"), ("↑↓", "more"))

    def show(self) -> None:
        if self.is_mounted:
            width = self.size.width
            lines = head(self.top.snapshot, width)
            if self.top.snapshot is not None and self.max_alarms:
                lines += shortened_alarms(self.top.snapshot, width, self.max_alarms)
            self.query_one("#head", Lines).show([*lines, Text()])
            self.query_one("#text", Lines).show(self.marked(rendered(self.body(), width - 1)))
        super().show()

    def marked(self, lines: list[Text]) -> list[Text]:
        """Mark the line that is selected, if there is any."""
        return lines

    def action_move(self, step: int) -> None:
        self.query_one("#scroll").scroll_relative(y=step, animate=False)

    def action_close(self) -> None:
        self.dismiss()
        self.top.say("")


class ReadSheet(Sheet):
    """A text that is read from the store when the sheet is opened, and on request."""

    _text: RenderableType = Text("looking…", "dim")
    _reading: asyncio.Task[None] | None = None

    async def read(self) -> RenderableType:
        raise NotImplementedError

    def body(self) -> RenderableType:
        return self._text

    def on_mount(self) -> None:
        super().on_mount()
        self.action_read()

    def on_unmount(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def action_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self.top.start(self._read())

    async def _read(self) -> None:
        try:
            self._text = await self.read()
        except (WindlassError, OSError) as error:
            self._text = Text(str(error), "red")
        self.show()


def rendered(body: RenderableType, width: int) -> list[Text]:
    console = Console(file=io.StringIO(), width=max(width, 1), markup=False, highlight=False)
    return [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for line in console.render_lines(body, pad=False)
    ]
